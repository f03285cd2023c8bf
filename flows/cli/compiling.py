"""The command compile."""

from flows.cli.app import app, console


@app.command()
def compile() -> None:
    """Compile all kernels, once per machine and version. A first run does the same."""
    from flows.kernel_compilation import compile_kernels

    out = console()
    count = compile_kernels(lambda line: out.print(line, highlight=False))
    out.print(f"kernels: {count} compiled" if count else "kernels: all are compiled", highlight=False)
