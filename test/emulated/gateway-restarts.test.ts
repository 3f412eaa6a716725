/** Runs test/netns/gateway-restarts.test.ts against a stock kernel. */
import { guestSuite } from '../guest/in-guest.ts'

guestSuite('gateway-restarts')
