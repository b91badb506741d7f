import pytest

import sass

DISASSEMBLY = """
\tcode for sm_90a
\t\tFunction : kernel
\t.headerflags\t@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                 /* 0x00000a00ff017b82 */
                                                                          /* 0x000fe20000000800 */
        /*0010*/              @!P2 LDG.E.EF.128 R8, desc[UR4][R26.64] ;   /* 0x0000000000007919 */
        /*0020*/              @!PT LDS RZ, [RZ] ;                         /* 0x0000000000007919 */
        /*0030*/               @P0 BRA 0x2e0 ;                            /* 0x0000000000007919 */
        /*0040*/             @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;            /* 0x0000000000007919 */
        /*10050*/                  UBLKCP.G.S [UR10], [UR13], UR12 ;      /* 0x0000000000007919 */
        /*0060*/                   UCGABAR_ARV ;                          /* 0x0000000000007919 */
"""


def test_every_instruction_is_read_whatever_its_predicate():
    assert sass.instructions(DISASSEMBLY) == {
        "LDC", "LDG.E.EF.128", "LDS", "BRA", "UIADD3", "UBLKCP.G.S", "UCGABAR_ARV"}


def test_traced_kernels_are_left_out():
    traced = """
\t\tFunction : traced
        /*0000*/                   CS2R R2, SR_CLOCKLO ;                  /* 0x00000a00ff017b82 */
        /*0010*/                   STG.E.EF.128 desc[UR4][R2.64], R8 ;    /* 0x0000000000007919 */
"""
    assert sass.instructions(DISASSEMBLY + traced) == sass.instructions(DISASSEMBLY)
    assert sass.instructions(traced + DISASSEMBLY) == sass.instructions(DISASSEMBLY)


@pytest.mark.parametrize("instruction, pattern, expected", [
    ("LDG.E.EF.128", "LDG", True),
    ("LDG.E.EF.128", "LDG.128", True),
    ("LDG.E.EF.128", "LDG.64", False),
    ("LDG.E.U16", "LDG.U16", True),
    ("LDG.E.U16", "LDG.128", False),
    ("VOTE.ANY", "VOTE", True),
    ("VOTEU.ANY", "VOTE", False),
    ("LDGSTS.E.128", "LDG", False),
    ("LDGSTS.E.128", "LDG.128", False),
    ("UBLKCP.S.G", "UBLKCP.S.G", True),
    ("UBLKCP.S.G.MULTICAST", "UBLKCP.MULTICAST", True),
    ("UBLKCP.G.S", "UBLKCP.S.G", False),
])
def test_a_name_stands_for_the_modifiers_in_their_order(instruction, pattern, expected):
    assert sass.is_a(instruction, pattern) == expected


def rung(holds=(), lacks=()):
    return {"machine": {"holds": holds, "lacks": lacks}}


def test_what_is_missing_and_what_should_be():
    held = sass.instructions(DISASSEMBLY)
    assert list(sass.faults(rung(["LDG.128"], ["STS"]), held)) == []
    assert list(sass.faults(rung(["UTMALDG.2D"]), held)) == ["teaches UTMALDG.2D, and has none"]
    assert list(sass.faults(rung(lacks=["LDG"]), held)) == [
        "does without LDG, and has LDG.E.EF.128"]


def test_a_rung_whose_kernels_lie_elsewhere_teaches_no_instruction():
    assert list(sass.faults(rung(), set())) == []


@pytest.mark.parametrize("listing, expected", [
    ("ELF file    1: a.sm_80.cubin\nELF file    2: a.sm_90.cubin\n", "sm_90"),
    ("ELF file    1: a.1.sm_90a.cubin\n", "sm_90a"),
    ("ELF file    1: a.sm_100.cubin\nELF file    2: a.sm_90.cubin\n", "sm_100"),
    ("", None),
])
def test_the_newest_architecture(listing, expected):
    assert sass.newest_architecture(listing) == expected


def test_cuobjdump_of_the_environment_is_found(write, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sass.find_cuobjdump(tmp_path) is None
    packaged = write("build/venv/lib/python3.11/site-packages/nvidia/cu13/bin/cuobjdump")
    assert sass.find_cuobjdump(tmp_path) == str(packaged)


@pytest.mark.parametrize("words, code", [([], sass.SKIPPED), (["--if-possible"], 0)])
def test_without_cuobjdump_it_is_skipped_or_passes(monkeypatch, tmp_path, words, code):
    monkeypatch.setattr(sass, "find_cuobjdump", lambda root: None)
    monkeypatch.setattr("sys.argv", ["sass.py", "--penstock", "none", "--objects",
                                     str(tmp_path / "none"), "copy", *words])
    assert sass.main() == code
