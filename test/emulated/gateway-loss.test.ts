/** A gateway node loses power, with the WireGuard and the next-hop groups of a stock kernel. */
import { guestSuite } from '../guest/in-guest.ts'

guestSuite('gateway-loss', { file: 'test/failover/node-gone.ts', isLarge: true })
