/**
 * Services with more than 100 ports (voice, FTP, game servers), from the Service of one cluster to SRV answers and node
 * tables of another. Kubernetes takes 20,000 ports in an EndpointSlice since 1.21. Agents and broker are real, with TLS
 * on loopback.
 */
import { join } from 'node:path'
import t from 'tap'
import { answer } from '../../dns/zone/answer.ts'
import { formatAnswer } from '../../dns/zone/zone-text.ts'
import { TYPE_A, TYPE_SRV } from '../../dns/message/wire.ts'
import { parseDnsName } from '../../model/dns-name.ts'
import type { EndpointSlice, KubeObject, Service } from '../../model/objects.ts'
import { planService } from '../../routeagent/balance/plan-service.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { Member, startBroker } from '../agent/real-members.ts'
import { service, serviceExport, slice } from '../agent/site.ts'
import { syncedIndex } from '../dns/zone-fixture.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

type Ports = NonNullable<NonNullable<Service['spec']>['ports']>

const ports = (count: number): Ports =>
  Array.from({ length: count }, (_, i) => ({ name: `p${i + 1}`, port: 10_000 + i, targetPort: 20_000 + i }))

function objects(name: string, count: number, address: string, spec: Service['spec'] = {}): readonly KubeObject[] {
  const own = ports(count).map((port) => ({ name: port.name ?? '', port: Number(port.targetPort) }))
  const endpoints: EndpointSlice = { ...slice('shop', name, address), ports: own }
  return [service('shop', name, { ports: ports(count), ...spec }), endpoints, serviceExport('shop', name)]
}

t.test('101 and 2,000 ports reach the other cluster; more are told in Valid and disturb nobody', async (t) => {
  const directory = temporaryFolder(t)
  const brokerDirectory = join(directory, 'broker')
  const broker = await startBroker(brokerDirectory, 0)
  const milano = new Member('milano', directory)
  const paris = new Member('paris', directory)
  t.teardown(async () => {
    await Promise.all([milano.stop(), paris.stop()])
    await broker.stop()
  })
  for (const site of [milano, paris]) {
    await site.join(brokerDirectory, broker.port)
    site.start()
  }
  t.teardown(() => {
    if (!t.passing())
      for (const line of [...milano.logger.lines, ...paris.logger.lines]) t.comment(JSON.stringify(line).slice(0, 400))
  })
  const put = (some: readonly KubeObject[]): void => some.forEach((object) => milano.api.put(object))
  put(objects('voice', 101, '10.42.0.5'))
  put(objects('games', 2000, '10.42.0.6'))
  put(objects('ftp', 101, 'ftp-0@10.42.0.8', { clusterIP: 'None' }))
  put(objects('excess', 20_001, '10.42.0.9'))
  const long = 'x'.repeat(50)
  const wide = ports(9000).map((port) => ({ ...port, name: `${port.name}-${long}` }))
  put(objects('wide', 9000, '10.42.0.10', { ports: wide }))
  put(objects('web', 1, '10.42.0.11'))

  const condition = (name: string, type: string): string => {
    const found = milano.api.get('ServiceExport', name, 'shop')?.status?.conditions?.find((one) => one.type === type)
    return `${found?.status} ${found?.reason}: ${found?.message}`
  }
  for (const name of ['voice', 'games', 'ftp', 'web'])
    await eventually(() => condition(name, 'Ready').startsWith('True Exported'), {
      say: `${name}: ${condition(name, 'Valid')} ${condition(name, 'Ready')}`,
      deadlineMs: 40_000,
    })
  await eventually(() => condition('wide', 'Valid').startsWith('False'), { say: 'wide is told' })
  t.equal(
    condition('excess', 'Valid'),
    'False ServiceTooLarge: Service shop/excess is too large to be exported: ' +
      'it has 20001 ports, and an export carries at most 20000',
  )
  t.match(
    condition('wide', 'Valid'),
    /^False ServiceTooLarge: .*: its export takes \d{6} bytes with 9000 ports, and a record has at most 524288$/,
  )
  for (const name of ['excess', 'wide'])
    t.equal(condition(name, 'Ready'), 'False Pending: waiting until the export is valid', name)

  const imported = (name: string): { ports: number; slices: readonly EndpointSlice[] } => {
    const slices = paris.api.cache('EndpointSlice').list()
    return {
      ports: paris.api.get('ServiceImport', name, 'shop')?.spec.ports.length ?? 0,
      slices: slices.filter(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/service-name'] === name),
    }
  }
  const wanted = { voice: 101, games: 2000, ftp: 101, web: 1 }
  for (const [name, count] of Object.entries(wanted)) {
    const there = (): boolean => imported(name).ports === count && imported(name).slices[0]?.ports?.length === count
    await eventually(there, { say: `${name} in paris`, deadlineMs: 40_000 })
  }
  t.strictSame([imported('excess').ports, imported('wide').ports], [0, 0])

  // DNS: one port, and as many as fit.
  const index = await syncedIndex(paris.api)
  const ask = (text: string, type: number): string[] => {
    const name = parseDnsName(`${text}.shop.svc.clusterset.local.`)
    if (name.kind === 'malformed' || name.kind === 'notOurs') throw new Error(text)
    return formatAnswer(answer(index, { name, type }, 0)).split('\n')
  }
  t.match(ask('_p101._tcp.voice', TYPE_SRV)[0], /SRV 0 100 10100 voice\.shop/)
  t.match(ask('_p2000._tcp.games', TYPE_SRV)[0], /SRV 0 100 11999 games\.shop/)
  t.match(ask('_p101._tcp.ftp', TYPE_SRV)[0], /SRV 0 100 20100 ftp-0\.milano\.ftp/, 'headless: the target port')
  t.equal(ask('voice', TYPE_SRV).filter((line) => line.includes('SRV')).length, 101)
  t.equal(ask('games', TYPE_A).length, 1)

  // The node table: every port is served by its own target port.
  for (const [name, count] of Object.entries(wanted)) {
    const service = paris.api.get('ServiceImport', name, 'shop')
    if (service === undefined || service.spec.type === 'Headless') continue
    const plans = planService(service, imported(name).slices, {
      node: 'worker',
      self: 'paris',
      zone: undefined,
      clustersetIpRange: parsePrefix('245.0.0.0/8'),
      reachable: undefined,
    })
    t.equal(plans.size, count, name)
    const unserved = [...plans].filter(([key, { slots }]) => {
      const target = Number(key.split(' . ')[2]) + 10_000
      return slots.length !== 1 || !slots[0]?.endsWith(` . ${target}`)
    })
    t.strictSame(unserved.slice(0, 3), [], `${name}: each port goes to its target port`)
  }
})
