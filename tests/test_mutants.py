"""Every mistake in scripts/mutate.py is noticed by a test of the core: what makes the other tests worth running."""

import pytest

from scripts.mutate import MUTATIONS, ROOT, first_failure


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_line_that_a_mistake_changes_is_there_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.before) == 1


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mistake_in_the_core_is_noticed(mutation):
    noticed = first_failure(mutation)
    assert noticed is not None, "no test failed"
    # A run that broke off for another reason has noticed nothing.
    assert "::" in noticed, noticed
