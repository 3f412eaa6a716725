/** test/netns/kernel-conntrack.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-conntrack')
