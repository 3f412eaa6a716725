/** test/lanes/relayed-wireguard.test.ts against a stock kernel, with its own WireGuard at both ends. */
import { guestSuite } from './in-guest.ts'

guestSuite('relayed-wireguard', { file: 'test/lanes/relayed-wireguard.test.ts', seconds: 240 })
