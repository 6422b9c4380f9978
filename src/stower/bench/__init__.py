"""Benchmarks: workloads as data (workloads/*.yaml), each run in a process of its own."""
