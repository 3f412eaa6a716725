/** test/netns/kernel-route-table.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-route-table')
