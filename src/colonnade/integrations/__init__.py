"""What other systems see of a run, of a service and of a party's own part of a model: each in a file of its own."""
