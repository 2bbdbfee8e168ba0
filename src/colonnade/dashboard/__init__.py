"""A local web page over one party's own folder: its runs, versions, ledger, audits and services, to be looked at."""
