"""Options of XLA that save time: of the tests' process, and of those they start.

The only code here that depends on the version of JAX: XLA's options come and go.
"""

import functools

import jax

# Programs that are slower and may round otherwise, made in a third of the time.
OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,  # JAX 0.12 no longer has it
    "xla_llvm_disable_expensive_passes": True,
}


@functools.cache
def quick_options():
    """The options that the installed XLA has; it refuses a program with others."""
    program = jax.jit(lambda x: x).lower(0.0)

    def exists(name):
        try:
            program.compile(compiler_options={name: OPTIONS[name]})
        except jax.errors.JaxRuntimeError as e:
            if "No such compile option" not in str(e):
                raise
            return False
        return True

    return {name: value for name, value in OPTIONS.items() if exists(name)}


def quick_environment():
    """The same as environment variables, for processes whose numbers have a tolerance.

    XLA ends a process whose `XLA_FLAGS` name an option that it does not have.
    """
    flags = (f"--{name}={value}".lower() for name, value in quick_options().items())
    return {"XLA_FLAGS": " ".join(flags)}
