/**
 * Three sites with real broker and agents: what `sealane status` reports while all is well, while a link is down, while
 * the broker is away, and afterwards.
 */
import t from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, startCli } from '../cli/run-cli.ts'
import type { ConnectionState } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const SERVICE = `
apiVersion: v1
kind: Namespace
metadata: { name: shop }
---
apiVersion: v1
kind: Service
metadata: { name: NAME, namespace: shop }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: NAME-1, namespace: shop, labels: { kubernetes.io/service-name: NAME } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: [10.42.0.5], conditions: { ready: true } }]
`

interface StatusDocument {
  readonly health: string
  readonly broker: { readonly state: string }
  readonly problems: readonly {
    readonly reason: string
    readonly subject: { readonly kind: string; readonly name: string }
    readonly consequences: readonly { readonly reason: string; readonly count: number }[]
  }[]
}

/** The status as a line: `2 ClusterCutOff paris (LaneProbeTimeout 1)`. */
async function statusLine(site: StorySite, page: string): Promise<string> {
  const { code, stdout } = await runCli(['status', '--site', site.folder.file, '--ask', page, '-o', 'json'])
  return `${code} ${lineOf(JSON.parse(stdout) as StatusDocument)}`
}

function lineOf({ broker, problems }: StatusDocument): string {
  const said = problems.map(({ reason, subject, consequences }) => {
    const below = consequences.map((one) => `${one.reason} ${one.count}`).sort()
    return `${reason} ${subject.name}${below.length === 0 ? '' : ` (${below.join(', ')})`}`
  })
  return [`broker ${broker.state}`, ...said].join('; ')
}

t.test('status tells what is wrong with a site, and that it is well again', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const [milano, paris, tokyo] = [
    await StorySite.join(t, 'milano', broker),
    await StorySite.join(t, 'paris', broker),
    await StorySite.join(t, 'tokyo', broker),
  ]
  const sites = [milano, paris, tokyo]
  await Promise.all(sites.map((site) => site.start()))
  const pages = new Map<StorySite, string>()
  for (const site of sites) pages.set(site, await site.statusPage(t))
  const up = (site: StorySite): Record<string, ConnectionState> =>
    Object.fromEntries(sites.filter((other) => other !== site).map(({ id }) => [id, 'up']))
  const links = new Map(sites.map((site) => [site, up(site)] as const))
  const becomes = async (site: StorySite, want: string): Promise<void> => {
    let last = ''
    const asked = async (): Promise<boolean> => {
      // The gateway keeps writing its heartbeat.
      await site.tunnels(links.get(site) ?? {})
      last = await statusLine(site, pages.get(site) ?? '')
      return last === want
    }
    await eventually(asked, { deadlineMs: 15_000 }).catch(() => undefined)
    t.equal(last, want, site.id)
  }

  milano.write('shop.yaml', SERVICE.replaceAll('NAME', 'web'))
  for (const site of [paris, tokyo])
    site.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')
  t.equal((await runCli(['export', 'web', '-n', 'shop', '--site', milano.folder.file])).code, 0)
  for (const site of sites) await becomes(site, '0 broker connected')

  links.set(paris, { milano: 'down', tokyo: 'up' })
  await becomes(paris, '2 broker connected; ClusterCutOff milano (ImportsWithoutBackends 1, LaneProbeTimeout 1)')
  links.set(paris, { milano: 'down', tokyo: 'down' })
  await becomes(
    paris,
    '2 broker connected; AllClustersCutOff paris (ClusterCutOff 2, ImportsWithoutBackends 1, LaneProbeTimeout 2)',
  )
  links.set(paris, up(paris))
  await becomes(paris, '0 broker connected')

  await broker.stop()
  // The namespace is in another file.
  milano.write('db.yaml', SERVICE.replaceAll('NAME', 'db').replace(/^[^]*?---\n/, ''))
  t.equal((await runCli(['export', 'db', '-n', 'shop', '--site', milano.folder.file])).code, 0)
  await becomes(milano, '0 broker away; BrokerUnreached - (Pending 1)')
  await broker.start()
  for (const site of sites) await becomes(site, '0 broker connected')
})

t.test('status --watch at a site shows what changes while it runs', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const [milano, paris] = [await StorySite.join(t, 'milano', broker), await StorySite.join(t, 'paris', broker)]
  await Promise.all([milano.start(), paris.start()])
  const page = await milano.statusPage(t)
  let link: ConnectionState = 'up'
  await milano.tunnels({ paris: link })
  const args = ['status', '--site', milano.folder.file, '--ask', page, '--watch', '-o', 'json']
  const watching = startCli(args)
  t.teardown(() => watching.stop())
  const becomes = async (want: string, say: string): Promise<void> => {
    let last = ''
    const looked = async (): Promise<boolean> => {
      // The gateway keeps writing its heartbeat.
      await milano.tunnels({ paris: link })
      const line = watching.answers().trim().split('\n').at(-1) ?? ''
      last = line === '' ? '' : lineOf(JSON.parse(line) as StatusDocument)
      return last === want
    }
    await eventually(looked, { deadlineMs: 20_000, intervalMs: 200 }).catch(() => undefined)
    t.equal(last, want, say)
  }
  const well = 'broker connected'
  await becomes(well, 'all is well')
  link = 'down'
  await becomes('broker connected; ClusterCutOff paris (LaneProbeTimeout 1)', 'the link dies')
  link = 'up'
  await becomes(well, 'it returns')
  const file = 'state/objects/Gateway/_/ghost.json'
  milano.folder.write(file, '{"kind":')
  await becomes(`broker connected; NotReadable ${milano.folder.path(file)}`, 'a file of the state is damaged')
  milano.folder.remove(file)
  await becomes(well, 'it is gone')
  await broker.stop()
  await becomes('broker away; BrokerUnreached -', 'the broker is away')
  await broker.start()
  await becomes(well, 'and back')
  watching.stop()
  const { code, stderr } = await watching.result
  t.equal(code, 0, 'it ends with what it saw last')
  t.equal(stderr.split('\n').filter((line) => line.includes('ghost')).length, 1, 'one warning, however many looks')
})
