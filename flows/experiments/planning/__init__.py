"""Planning: parameters, tokens, operations, memory, time and money of a training before they are paid for."""
