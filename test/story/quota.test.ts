/**
 * A member with more exports than its quota allows. Broker, agents and commands are real, with TLS on loopback. The
 * first exports by name are accepted; the others report why they are not and what to do, and are accepted once the
 * operator raises the quota.
 */
import t from 'tap'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { DEFAULT_MEMBER_QUOTA } from '../../model/member-quota.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const NAMES = ['a', 'b', 'c', 'd']
const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'
const service = (name: string, i: number): string => `---
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ports: [{ name: http, port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: [10.42.0.${i + 1}], conditions: { ready: true } }]
`

t.test('over the quota, and through when it is raised', async (t) => {
  const limits = { ...DEFAULT_BROKER_CONFIG.limits, quota: { ...DEFAULT_MEMBER_QUOTA, records: 4 } }
  const broker = await LoopbackBroker.start(t, { limits })
  const milano = await StorySite.join(t, 'milano', broker)
  const paris = await StorySite.join(t, 'paris', broker, ['10.99.0.0/16'])
  const tokyo = await StorySite.join(t, 'tokyo', broker, ['10.98.0.0/16'])
  await Promise.all([milano.start(), paris.start(), tokyo.start()])
  paris.write('shop.yaml', NAMESPACE)
  tokyo.write('shop.yaml', NAMESPACE)
  milano.write('shop.yaml', NAMESPACE + NAMES.map(service).join(''))
  const quota = async (...words: string[]) => runCli(['cluster', 'quota', 'milano', ...words, '--state', broker.state])
  for (const name of NAMES) {
    const { code, stderr } = await runCli(['export', name, '-n', 'shop', '--site', milano.folder.file])
    t.equal(code, 0, stderr)
  }
  const imported = (site: StorySite): string =>
    site
      .imports()
      .flatMap((line) => /^shop\/(\w+)/.exec(line)?.[1] ?? [])
      .join()
  const ready = (name: string): string => /Ready=\S+/.exec(milano.conditions(name))?.[0] ?? ''
  const becomes = async (names: string): Promise<void> => {
    for (const site of [paris, tokyo])
      await eventually(() => imported(site) === names, { deadlineMs: 15_000, say: `${site.id} imports ${names}` })
  }

  await becomes('a,b')
  for (const name of ['c', 'd'])
    await eventually(() => ready(name) === 'Ready=False/QuotaRecords', { say: `${name}: ${milano.conditions(name)}` })
  t.same(milano.exported(), ['a', 'b'])
  t.match((await quota()).stdout, /^records +4 of 4\n/)
  const listed = await runCli(['cluster', 'list', '--state', broker.state])
  t.match(listed.stderr, /^milano: its quota of 4 records is used up, .* sealane cluster quota milano --records N\n$/)

  // One export goes, and the next by name takes its place without a request.
  t.equal((await runCli(['unexport', 'a', '-n', 'shop', '--site', milano.folder.file])).code, 0)
  await becomes('b,c')
  t.equal(ready('d'), 'Ready=False/QuotaRecords')

  t.match(await quota('--records', '8'), { code: 0, stderr: 'changed\n' })
  await becomes('b,c,d')
  await eventually(() => ready('d') === 'Ready=True/Exported', { say: 'd is exported' })
  t.match(await quota('--records', '8'), {
    code: 0,
    stderr: 'the quota already has these limits: nothing was changed\n',
  })

  // A lowered quota removes nothing, even when the broker restarts.
  t.match(await quota('--records', '0'), { code: 0, stderr: 'changed\n' })
  await broker.stop()
  await broker.start({ limits })
  const inStep = (): Promise<number> => milano.count('sealane_publish_declares_total', 'answer="in_sync"')
  await eventually(async () => (await inStep()) > 0, { deadlineMs: 20_000, say: 'milano is in step again' })
  await becomes('b,c,d')
  t.same(milano.exported(), ['b', 'c', 'd'])
})
