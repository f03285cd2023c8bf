"""x"""


def settings() -> None:
    """x"""
