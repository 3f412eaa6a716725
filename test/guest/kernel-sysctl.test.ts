/** test/netns/kernel-sysctl.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-sysctl')
