"""What penstock.hf imports, and which versions of transformers it refuses. Needs neither."""

HEAD = """
    import sys, types
    import penstock.hf
    CALLS = [penstock.hf.register, lambda: penstock.hf.use(None), lambda: penstock.hf.load("somewhere"),
             lambda: penstock.hf.offload(None)]
    def says(call):
        try:
            call()
        except ImportError as error:
            return str(error)
        raise AssertionError
"""


def test_needs_transformers_only_when_it_is_used(python):
    python(HEAD + """
    assert "torch" not in sys.modules and "transformers" not in sys.modules
    sys.modules["transformers"] = None
    for call in CALLS:
        assert says(call).startswith("penstock.hf: expected transformers 5.7 or later, and torch: "), call
    """)


def test_versions_that_are_too_old(python):
    python(HEAD + """
    sys.modules["transformers"] = transformers = types.ModuleType("transformers")
    for transformers.__version__ in ("5.6.2", "4.57.1", "5.0.0rc3", "5.6.0.dev0"):
        for call in CALLS:
            said = says(call)
            assert said == ("penstock.hf: expected transformers 5.7 or later, and torch; given "
                            f"transformers {transformers.__version__}"), said
    """)


def test_versions_that_lack_something(python):
    """Whatever it is, and although the version is new enough."""
    python(HEAD + """
    sys.modules["transformers"] = transformers = types.ModuleType("transformers")
    for transformers.__version__ in ("5.7.0", "5.10.1", "6.0"):
        for call in CALLS:
            said = says(call)
            assert f"given transformers {transformers.__version__}, of which" in said, said
            assert "cannot import all that it needs" in said, said
    """)
