"""Files that a tool writes are what it writes now."""

import wgmma


def test_wgmma_shapes_are_current():
    assert wgmma.TARGET.read_text() == wgmma.text()


def test_wgmma_shapes_name_every_register():
    text = wgmma.shape(16)
    assert '"{%0, %1, %2, %3, %4, %5, %6, %7}"' in text
    assert text.count('"+f"') == 8 and '"%8"' in text
