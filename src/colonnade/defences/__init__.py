"""What a party can do to what leaves it, so that less follows: each defence one option, with what it costs measured."""
