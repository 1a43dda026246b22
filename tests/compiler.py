"""Options of XLA that save time: of the tests' process, and of those they start."""

# Programs that are slower and may round otherwise, made in a third of the time.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
}
# The same as environment variables, for processes whose figures have a tolerance.
QUICK_PROCESS = {
    "XLA_FLAGS": " ".join(f"--{name}={value}" for name, value in QUICK.items()).lower()
}
