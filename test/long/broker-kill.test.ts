/**
 * The broker is killed (SIGKILL) while two sites export as fast as they can. Acknowledged records are in its database,
 * and the others are sent again; in the end both sites have imported the same, whole set.
 */
import { join } from 'node:path'
import t from 'tap'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { DATABASE_FILE } from '../../broker/store/state-directory.ts'
import { eventually } from '../support/eventually.ts'
import { BrokerProcess } from '../story/broker-process.ts'
import { StorySite } from '../story/site.ts'

const KILLS = 2
const UNDER_WAY = 8

function service(name: string): string {
  return `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ports: [{ name: http, port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: http, port: 80 }]
endpoints: [{ addresses: [10.42.0.5], conditions: { ready: true } }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: ${name}, namespace: shop }
`
}

/** Each record that the killed broker has kept, as `milano/ServiceExport/shop/m0-1`. */
async function kept(state: string): Promise<ReadonlySet<string>> {
  const log = openSqliteLog({ file: join(state, DATABASE_FILE), create: false })
  const keys = log.list('record').map(({ key }) => key)
  await log.close()
  return new Set(keys)
}

t.test('kill -9 in a stream of exports', async (t) => {
  const broker = await BrokerProcess.start(t)
  const sites = [await StorySite.join(t, 'milano', broker), await StorySite.join(t, 'paris', broker)]
  for (const site of sites) site.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')
  await Promise.all(sites.map((site) => site.start()))

  const acknowledged = (): string[] =>
    sites.flatMap((site) => site.exported().map((name) => `${site.id}/ServiceExport/shop/${name}`))
  let all = 0
  const exportOne = (name: string): void => {
    for (const site of sites) site.write(`${name}.yaml`, service(`${site.id}-${name}`))
    all += sites.length
  }

  for (let round = 0; round < KILLS; round += 1) {
    for (let i = 0; i < 15; i += 1) {
      exportOne(`${round}-${i}`)
      // Some records are always in flight, so that the kill hits them.
      await eventually(() => all - acknowledged().length <= UNDER_WAY, { intervalMs: 20 })
    }
    const killed = broker.kill()
    for (let i = 15; i < 25; i += 1) exportOne(`${round}-${i}`)
    await killed

    const records = await kept(broker.state)
    const promised = acknowledged()
    const lost = promised.filter((key) => !records.has(key))
    t.same(lost, [], `round ${round}: nothing of ${promised.length} acknowledged exports is lost`)
    t.ok(promised.length < all, `${all - promised.length} of ${all} were still on their way`)

    await broker.start()
    const services = (site: StorySite): string[] => site.imports().filter((line) => line.endsWith(' Ready'))
    await eventually(() => sites.every((site) => services(site).length === all), {
      deadlineMs: 30_000,
      say: `both sites have imported ${all} services`,
    })
    const [milano = [], paris = []] = sites.map(services)
    t.same(milano, paris, 'and they are the same')
  }
})
