/**
 * The whole path of a service: a ServiceExport is written in milano, and a name answers in paris. Broker, agents and
 * DNS servers are real, with TLS and DNS sockets on loopback; only the kernels are left out. Both sites use
 * 10.42.0.0/16, so paris must see milano's pods under milano's global prefix.
 */
import t from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const WEB = 'web.shop.svc.clusterset.local'
const DB = 'db.shop.svc.clusterset.local'

const SERVICES = `
apiVersion: v1
kind: Namespace
metadata: { name: shop }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: [10.42.0.5], conditions: { ready: true } }]
---
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
endpoints:
  - { addresses: [10.42.0.7], hostname: db-0, conditions: { ready: true } }
  - { addresses: [10.42.1.8], hostname: db-1, conditions: { ready: true } }
`

t.test('from export to answer, and through the loss of the broker', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await StorySite.join(t, 'milano', broker)
  const paris = await StorySite.join(t, 'paris', broker)
  await Promise.all([milano.start(), paris.start()])
  await paris.tunnel('milano', 'up')
  milano.write('shop.yaml', SERVICES)
  paris.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')
  const sealane = async (site: StorySite, verb: 'export' | 'unexport', name: string): Promise<void> => {
    const { code, stderr } = await runCli([verb, name, '-n', 'shop', '--site', site.folder.file])
    t.equal(code, 0, `${verb} ${name} ${stderr}`)
  }
  const becomes = async (site: StorySite, name: string, want: string, type?: 'A' | 'SRV'): Promise<void> => {
    let last = ''
    const asked = async (): Promise<boolean> => (last = await site.dig(name, type)) === want
    await eventually(asked).catch(() => undefined)
    t.equal(last, want, `${site.id}: ${type ?? 'A'} ${name}`)
  }
  const imports = async (site: StorySite, want: readonly (string | undefined)[]): Promise<void> => {
    await eventually(() => site.imports().join() === want.join()).catch(() => undefined)
    t.same(site.imports(), want, `${site.id} imports`)
  }

  t.equal(await paris.dig(WEB), 'NXDOMAIN', 'nothing is exported yet')

  // A service with an address of its own has one clusterset IP, the same everywhere.
  await sealane(milano, 'export', 'web')
  const ip = await eventually(() => paris.imports()[0]?.match(/ClusterSetIP (245\.0\.\d+\.\d+) /)?.[1])
  await becomes(paris, WEB, ip)
  await becomes(milano, WEB, ip)
  const web = [`shop/web ClusterSetIP ${ip} http:80 from milano Ready`, 'web<-milano http:8080 244.0.0.5(10-42-0-5)']
  await imports(paris, web)
  await eventually(() => milano.imports().includes('web<-milano http:8080 10.42.0.5(10-42-0-5)'), {
    say: 'at home the pod keeps its own address',
  })

  // The pods of a headless service are answered one by one, under their global addresses.
  await sealane(milano, 'export', 'db')
  await becomes(paris, DB, '244.0.0.7 244.0.1.8')
  await becomes(paris, `db-1.milano.${DB}`, '244.0.1.8')
  await becomes(paris, `_sql._tcp.${DB}`, `0 50 5432 db-0.milano.${DB}. 0 50 5432 db-1.milano.${DB}.`, 'SRV')
  await becomes(milano, `db-1.milano.${DB}`, '10.42.1.8')

  // The probes find the tunnel dead: the pods of that cluster leave the answers at once, and return with the tunnel.
  await paris.tunnel('milano', 'down')
  await becomes(paris, DB, 'NXDOMAIN')
  await paris.tunnel('milano', 'up')
  await becomes(paris, DB, '244.0.0.7 244.0.1.8')

  // Two sites disagree about a service: the older export wins, and both get the condition.
  paris.write('web.yaml', SERVICES.split('---\n')[1]?.replace('port: 80,', 'port: 81,') ?? '')
  await sealane(paris, 'export', 'web')
  for (const site of [milano, paris]) {
    await eventually(() => site.conditions('web').includes('Conflict=True/PortConflict'), {
      say: `${site.id} is told of the conflict`,
    })
  }
  await sealane(paris, 'unexport', 'web')
  await eventually(() => milano.conditions('web').includes('Conflict=False'), { say: 'the conflict is over' })

  // The broker is lost. Nothing changes, even for an agent and a DNS server that restart.
  const db = ['shop/db Headless - sql:5432 from milano Ready', 'db<-milano sql:5432 244.0.0.7(db-0) 244.0.1.8(db-1)']
  const both = [db[0], web[0], db[1], web[1]]
  await imports(paris, both)
  await broker.stop()
  await paris.stop()
  await paris.start()
  await becomes(paris, WEB, ip)
  await becomes(paris, `db-0.milano.${DB}`, '244.0.0.7')
  await imports(paris, both)

  // The broker returns: both sites report that they are in sync, and no record is sent again.
  const puts = 'sealane_publish_messages_total'
  const before = await milano.count(puts, 'type="put"')
  t.ok(before >= 4, `milano has sent ${before} records in its life`)
  const inStep = (site: StorySite): Promise<number> => site.count('sealane_publish_declares_total', 'answer="in_sync"')
  const inStepBefore = await inStep(milano)
  await broker.start()
  const connected = async (site: StorySite, times: number): Promise<boolean> =>
    (await inStep(site)) > times && (site.agent.deps.status.plans().get('agent') ?? '').includes('broker: connected')
  await eventually(async () => (await connected(milano, inStepBefore)) && (await connected(paris, 0)), {
    deadlineMs: 20_000,
    say: 'both are in step with the broker',
  })
  t.equal(await milano.count(puts, 'type="put"'), before, 'milano sent nothing again')
  t.equal(await paris.count(puts, 'type="put"'), 0, 'paris neither')

  // Later changes work as before.
  await sealane(milano, 'unexport', 'web')
  await becomes(paris, WEB, 'NXDOMAIN')
  await becomes(paris, DB, '244.0.0.7 244.0.1.8')
})
