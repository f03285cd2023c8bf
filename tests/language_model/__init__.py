"""An OpenAI-compatible server with planted answers, seeded faults and a bill, for tests of its clients."""
