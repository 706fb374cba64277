"""Chat engines: llama.cpp in this process, any OpenAI-compatible server by URL, and an echo for load tests."""
