from antiphon.tests.gateway.conftest import *
from antiphon.tests.gateway.test_vanish import *
@pytest.mark.timeout(300)
def test_leak(tone_server):
    rush(tone_server, range(64)); print(at_rest(tone_server))
    for k in range(6):
        rush(tone_server, range(64+600*k, 664+600*k)); print(at_rest(tone_server))
