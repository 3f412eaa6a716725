/** test/netns/gateway-lanes.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('gateway-lanes')
