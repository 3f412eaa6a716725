/** test/netns/kernel-wireguard.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-wireguard')
