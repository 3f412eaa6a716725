/** test/netns/kernel-nft.test.ts against a stock kernel. */
import { guestSuite } from './in-guest.ts'

guestSuite('kernel-nft')
