/** test/netns/kernel-xfrm.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-xfrm')
