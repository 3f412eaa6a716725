/** How soon a lane comes up when the first call was in vain, and how soon it is back after the far end was gone. */
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { cluster } from '../gateway/support/worlds.ts'
import { GatewayProcess, type Site, type SiteInit, introduce, tell, withSites } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false

const MILANO: SiteInit = {
  cluster: cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16'),
  pods: '10.42',
  address: '192.0.2.10',
  router: '192.0.2.1',
  lane: { lane: 0, publicAddress: '192.0.2.10' },
}
const PARIS: SiteInit = {
  cluster: cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16'),
  pods: '10.42',
  address: '198.51.100.20',
  router: '198.51.100.1',
  lane: { lane: 0, publicAddress: '198.51.100.20' },
}
/** It can call, but not be called. */
const TOKYO: SiteInit = {
  ...PARIS,
  cluster: cluster('tokyo', 3, '10.42.0.0/16', '244.2.0.0/16'),
  lane: { lane: 0 },
  observedAddress: '203.0.113.1',
}

interface Running {
  process: GatewayProcess
  readonly site: Site
}

async function withTwo(
  t: Test,
  inits: readonly [SiteInit, SiteInit],
  story: (left: Running, right: Running) => Promise<void>,
): Promise<void> {
  await withSites(inits, temporaryFolder(t), async (sites, internet) => {
    await internet.exec('ip', ['link', 'set', `to-${inits[1].cluster.spec.id}`, 'up'])
    const left: Running = { process: new GatewayProcess(sites[0]), site: sites[0] }
    const right: Running = { process: new GatewayProcess(sites[1]), site: sites[1] }
    try {
      await story(left, right)
    } finally {
      await Promise.all([left.process.stop(), right.process.stop()])
    }
  })
}

const idOf = ({ site }: Running): string => site.init.cluster.spec.id

/** Milliseconds until both say that the lane is up. */
async function msUntilUp(left: Running, right: Running, deadlineMs = 20_000): Promise<number> {
  const start = performance.now()
  const both = (): boolean => left.process.stateOf(idOf(right)) === 'up' && right.process.stateOf(idOf(left)) === 'up'
  await eventually(both, { deadlineMs, say: `the lane up (${left.process.errors}${right.process.errors})` })
  return Math.round(performance.now() - start)
}

/** All of the gateway dies, its WireGuard too; only the key file stays. */
async function vanish({ process, site }: Running): Promise<void> {
  await process.stop('SIGKILL')
  const pids = (await site.gateway.exec('ip', ['netns', 'pids', site.gateway.name])).split('\n')
  for (const pid of pids.filter((text) => text !== '')) {
    const { stdout } = await site.gateway.tryExec('cat', [`/proc/${pid}/comm`])
    if (stdout.startsWith('wireguard')) await site.gateway.tryExec('kill', ['-KILL', pid])
  }
  await site.gateway.tryExec('ip', ['link', 'del', 'sealane0'])
}

t.test('the far side learns our key only after we started calling', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, TOKYO], async (milano, tokyo) => {
    tell(milano, tokyo)
    await eventually(() => tokyo.process.stateOf('milano') === 'connecting', { say: 'tokyo calls' })
    // The time is what is tested: calls of three seconds are lost.
    await sleep(3000)
    tell(tokyo, milano)
    const ms = await msUntilUp(milano, tokyo)
    t.ok(ms <= 2500, `up after ${ms} ms`)
  })
})

t.test('both learn of each other at about the same time', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    introduce(milano, paris)
    t.ok(await eventually(() => milano.process.status !== undefined && paris.process.status !== undefined))
    const ms = await msUntilUp(milano, paris)
    t.ok(ms <= 2500, `up after ${ms} ms`)
  })
})

for (const [say, far] of [
  ['which can be called and call', PARIS],
  ['which cannot be called', TOKYO],
] as const) {
  for (const gone of ['left', 'right'] as const) {
    const who = gone === 'left' ? 'milano' : far.cluster.spec.id
    t.test(`${who} is made anew, with its key; opposite, ${say}`, { skip, timeout: 120_000 }, async (t) => {
      await withTwo(t, [MILANO, far], async (left, right) => {
        introduce(left, right)
        await msUntilUp(left, right)
        const [lost, other] = gone === 'left' ? [left, right] : [right, left]
        await vanish(lost)
        const died = performance.now()
        await eventually(() => other.process.stateOf(idOf(lost)) === 'down', { say: 'the loss is noticed' })
        const noticed = Math.round(performance.now() - died)
        t.ok(noticed < 1000, `down after ${noticed} ms`)
        // Long enough for the session to be given up by who must call.
        await sleep(2000)
        lost.process = new GatewayProcess(lost.site)
        introduce(lost, other)
        for (const object of other.process.objects.values()) {
          if (object.kind === 'Endpoint' && object.spec.cluster === idOf(other)) lost.process.put(object)
        }
        await eventually(() => lost.process.status !== undefined, { say: 'started again' })
        const ms = await msUntilUp(left, right)
        t.ok(ms <= 2500, `up ${ms} ms after it was there again`)
        const prefix = idOf(right) === 'tokyo' ? '244.2.0.5' : '244.1.0.5'
        t.match(await pings(left.site.pod, prefix), '1 received')
      })
    })
  }
}

t.test('a link that was down: the lane is back with it', { skip, timeout: 120_000 }, async (t) => {
  for (const far of [PARIS, TOKYO]) {
    await withTwo(t, [MILANO, far], async (left, right) => {
      introduce(left, right)
      await msUntilUp(left, right)
      for (const downMs of [1000, 6000]) {
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'down'])
        const cut = performance.now()
        await eventually(() => right.process.stateOf('milano') === 'down', { say: 'down' })
        t.ok(performance.now() - cut < 1000, `down after ${Math.round(performance.now() - cut)} ms`)
        await sleep(downMs)
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'up'])
        await left.site.gateway.exec('ip', ['route', 'replace', 'default', 'via', MILANO.router])
        const ms = await msUntilUp(left, right)
        t.ok(ms <= 2000, `${idOf(right)}, down for ${downMs} ms: up after ${ms} ms`)
      }
    })
  }
})
