/**
 * Three clusters and an operator, who approves the expected cluster, refuses the unexpected one, and evicts one again.
 * Broker, agents and DNS servers are real, and the operator's commands run beside the broker, on its store.
 */
import t, { type Test } from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, startCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

/** The time that docs/operations.md promises an operator. */
const FELT_MS = 5000
const DB = 'db.shop.svc.clusterset.local'
const KEYS: Readonly<Record<string, string>> = {
  milano: Buffer.alloc(32, 1).toString('base64'),
  paris: Buffer.alloc(32, 2).toString('base64'),
  oslo: Buffer.alloc(32, 3).toString('base64'),
}
const PODS: Readonly<Record<string, string>> = { milano: '10.41.0.0/16', paris: '10.42.0.0/16', oslo: '10.50.0.0/16' }

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'
const service = (address: string): string => `---
apiVersion: v1
kind: Service
metadata: { name: db, namespace: shop }
spec: { clusterIP: None, ports: [{ name: sql, port: 5432 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: db-1, namespace: shop, labels: { kubernetes.io/service-name: db } }
addressType: IPv4
ports: [{ name: sql, port: 5432 }]
endpoints: [{ addresses: [${address}], hostname: db-0, conditions: { ready: true } }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: db, namespace: shop }
`

/** Joins a site, and approves it by the fingerprint that it prints itself. */
async function joinApproved(t: Test, broker: LoopbackBroker, id: string): Promise<StorySite> {
  const site = StorySite.make(t, id, [PODS[id] ?? ''])
  const join = startCli(['join', '--site', site.folder.file, '--token', await broker.token()])
  const [fingerprint] = await join.remarked(/SHA256:[A-Za-z0-9+/]{43}/)
  const accept = ['cluster', 'accept', id, '--fingerprint', fingerprint, '--state', broker.state]
  t.equal((await runCli(accept)).code, 0)
  const { code, stderr } = await join.result
  t.equal(code, 0, stderr)
  return site
}

/** Returns the milliseconds until `check` holds. Rejects after the time that an operator is promised. */
async function felt(say: string, since: number, check: () => boolean | Promise<boolean>): Promise<number> {
  await eventually(check, { deadlineMs: FELT_MS, intervalMs: 5, say })
  return Math.round(performance.now() - since)
}

t.test('approved by hand, evicted by hand', { timeout: 90_000 }, async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const milano = await joinApproved(t, broker, 'milano')
  const paris = await joinApproved(t, broker, 'paris')
  const oslo = await joinApproved(t, broker, 'oslo')
  const stranger = StorySite.make(t, 'tokyo', ['10.44.0.0/16'])
  const asks = startCli(['join', '--site', stranger.folder.file, '--token', await broker.token()])
  await asks.remarked(/waits for approval/)

  const sites = [milano, paris, oslo]
  await Promise.all(sites.map((site) => site.start()))
  for (const site of sites) await site.gateway(KEYS[site.id] ?? '')
  for (const site of [milano, paris]) {
    site.write('shop.yaml', NAMESPACE)
    await site.tunnel('oslo', 'up')
  }
  oslo.write('shop.yaml', NAMESPACE + service('10.50.0.9'))
  const whole = ['Cluster', 'Endpoint', 'EndpointSlice']
  for (const site of [milano, paris]) {
    await eventually(() => site.knownOf('oslo').join() === whole.join(), {
      deadlineMs: 15_000,
      say: `${site.id} has all`,
    })
    await eventually(async () => (await site.dig(DB)) === '10.50.0.9', { say: `${site.id} is answered` })
    t.same(site.knownOf('tokyo'), [], 'who waits is known to nobody')
  }

  t.equal((await runCli(['cluster', 'refuse', 'tokyo', '--state', broker.state])).code, 0)
  t.match(await asks.result, { code: 1, stderr: /reason: JoinRefusedByOperator/ })

  const streams = async (): Promise<number> => {
    const lines = (await broker.metrics.text()).split('\n').filter((line) => /^sealane_\w*streams\{/.test(line))
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
  }
  await eventually(async () => (await streams()) === 6, { say: 'three members, two streams each' })
  const evict = ['cluster', 'evict', 'oslo', '--force', '--state', broker.state]
  t.equal((await runCli(evict)).code, 0)
  const at = performance.now()
  const took = await Promise.all([
    felt('its streams end', at, async () => (await streams()) === 4),
    ...[milano, paris].map((site) => felt(`${site.id} drops its records`, at, () => site.knownOf('oslo').length === 0)),
    ...[milano, paris].map((site) => felt(`${site.id} says so`, at, async () => (await site.dig(DB)) === 'NXDOMAIN')),
    felt('oslo hears why', at, () =>
      oslo.agent.deps.logger.lines.some(({ fields }) => fields['reason'] === 'MemberEvicted'),
    ),
  ])
  t.comment(`felt after ${took.join(', ')} ms`)
  t.same(oslo.knownOf('milano'), ['Cluster', 'Endpoint'], 'the evicted one keeps what it knows, until it leaves')
  const listed = await broker.tokens((store) => store.members())
  t.match(
    listed.find(({ id }) => id === 'oslo'),
    { state: 'evicted', records: 0 },
  )

  // The evicted member cannot return with its old identity, even after a restart.
  await oslo.stop()
  await oslo.start().catch(() => undefined)
  const hears = (): boolean => oslo.agent.deps.logger.lines.some(({ fields }) => fields['reason'] === 'MemberEvicted')
  await eventually(hears, { deadlineMs: 15_000, say: 'it hears the same after a start' })
  t.equal(await streams(), 4)
  t.same(milano.knownOf('oslo'), [])
  await oslo.stop()
})
