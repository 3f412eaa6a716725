/** A peer whose initiation came between a plan and its application is not created again: its answer is under way. */
import { join } from 'node:path'
import t from 'tap'
import { type CallChoice, linkKey } from '../../../../gateway/cable/cable-driver.ts'
import { WireguardCable } from '../../../../gateway/cable/wireguard/wireguard-cable.ts'
import { farEnd } from '../../../../gateway/links/check-remotes.ts'
import { Round } from '../../../../kernel/apply/round.ts'
import { FakeRouteTable } from '../../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../../../kernel/fake/fake-wireguard.ts'
import { parseAddressPort } from '../../../../model/addresses/address-port.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { endpoint, key } from '../../support/worlds.ts'

const INITIATION_BYTES = 148
const AT = parseAddressPort('203.0.113.1:4601')
const CALL: CallChoice = { how: 'try', at: AT, why: 'relayed by oslo' }

t.test('what has arrived since the plan decides', async (t) => {
  const rows = [
    ['nothing has', 0, false, 0],
    ['an initiation has', INITIATION_BYTES, false, INITIATION_BYTES],
    ['only octets of a session that was known', INITIATION_BYTES, true, 0],
  ] as const
  for (const [say, arrives, hasSession, left] of rows) {
    const routes = new FakeRouteTable()
    const wireguard = new FakeWireguard({ routes })
    const clock = new FakeClock()
    const deps = { clock, routes, wireguard, sysctl: new FakeSysctl() }
    const cable = new WireguardCable(deps, { stateDir: join(temporaryFolder(t), 'gw') })
    const far = farEnd(endpoint('paris', 'gw', 0, [], key('paris')), cable.rules)
    const more = { cluster: 'paris', node: 'gw', laneAddress: '169.254.2.0', prefixes: ['244.2.0.0/16'] }
    const what = { remoteLane: 0, ownLane: 0, device: 'sealane0', port: 4500, mtu: 1400, behindNat: false }
    const lane = { ...what, address: '169.254.1.0/32', links: [{ ...far, ...more, choice: CALL }], successors: [] }
    const { signal } = new AbortController()
    const observed = async () => (await cable.observe([0], [far], signal)).get(0)
    const apply = async (seen: Awaited<ReturnType<typeof observed>>, callAgain: ReadonlySet<string>): Promise<void> => {
      const round = new Round({ logger: new CapturingLogger() })
      const init = { withIpv6: false, seen, mayJoin: false, callAgain, pathSource: new Map() }
      await cable.apply(lane, { ...init, round, signal })
      round.finish()
    }
    await apply(undefined, new Set())
    if (hasSession) wireguard.handshake('sealane0', far.identity, clock.now(), AT)
    const seen = await observed()
    wireguard.traffic('sealane0', far.identity, arrives, 0)
    await apply(seen, new Set([linkKey(far)]))
    t.equal((await observed())?.links.get(linkKey(far))?.rxBytes, left, say)
  }
})
