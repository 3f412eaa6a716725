/**
 * Gateways rotate their keys under traffic in both directions, with two gateways on each side and with one: links stay
 * up and no connection breaks. bench/failover.ts measures the loss.
 */
import t, { type Test } from 'tap'
import { Caller, LIGHT_LOAD, answerIn } from '../failover/caller.ts'
import { announcesKey, keyOf, linkStates, statusOf } from '../failover/reported.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(300_000 * SLOWNESS)

const DEADLINE_MS = 40_000

for (const names of [
  ['gw0', 'worker'],
  ['gw0', 'gw1', 'worker'],
]) {
  const many = names.length - 1
  t.test(`${many} on each side`, { skip, timeout: 140_000 * SLOWNESS }, (t) =>
    withTwoSites(temporaryFolder(t), (sites) => rotations(t, sites, many), { names }),
  )
}

async function rotations(t: Test, sites: TwoSites, many: number): Promise<void> {
  for (const pod of Object.values(sites.pods)) await answerIn(pod)
  const { milano, paris } = sites.pods
  const callers = [
    new Caller(milano, POD_ADDRESSES.paris, LIGHT_LOAD),
    new Caller(paris, POD_ADDRESSES.milano, LIGHT_LOAD),
  ]
  await Promise.all(callers.map(({ started }) => started))
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const all = [...sites.gateways('milano'), ...sites.gateways('paris')]
  const rounds: [say: string, gateways: readonly SiteNode[]][] = [
    ['one', sites.gateways('milano').slice(0, 1)],
    ['one of the other side', sites.gateways('paris').slice(-1)],
    ['all at once', all],
  ]
  for (const [i, [say, gateways]] of rounds.entries()) {
    await seen()
    const before = new Map(gateways.map((one) => [one, keyOf(one)]))
    for (const one of gateways) sites.rotate(one, `request ${i}`)
    await eventually(
      () => {
        const rest = gateways.filter((one) => keyOf(one) === before.get(one) || announcesKey(one))
        if (rest.length > 0) throw new Error(`${rest.map(conditionsOf).join('; ')} ${sites.errors()}`)
        return true
      },
      { deadlineMs: DEADLINE_MS, say: `${say}: new keys` },
    )
    await eventually(() => all.every((one) => handshakes(one).every((age) => age < 60)), {
      deadlineMs: DEADLINE_MS,
      say: `${say}: all have shaken hands`,
    })
    const after = await seen()
    t.strictSame(all.flatMap(linkStates), Array(all.length * many).fill('up'), `${say}: all links are up`)
    t.strictSame(
      after.map(({ broken }) => broken),
      [0, 0],
      `${say}: no connection is broken`,
    )
    t.comment(`${say}: ${after.map(({ sent, answered }) => `${sent - answered} of ${sent}`).join(', ')} lost`)
  }
  t.equal(new Set(all.map(keyOf)).size, all.length, 'each has a key of its own')
  await Promise.all(callers.map((caller) => caller.stop()))
}

const handshakes = (gateway: SiteNode): number[] =>
  (statusOf(gateway)?.connections ?? []).map((one) => one.handshakeAgeSeconds ?? Infinity)
const conditionsOf = (gateway: SiteNode): string =>
  `${gateway.port}: ${(statusOf(gateway)?.conditions ?? []).map(({ reason, message }) => `${reason} ${message}`).join(', ')}`
