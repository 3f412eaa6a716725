/** test/netns/kernel-nexthop.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-nexthop')
