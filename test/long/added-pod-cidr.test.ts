/**
 * A running member gets another pod CIDR: pods there are told, the site file states the network, and the broker takes
 * it. There is no new join: the member keeps its identity, and its services are reached throughout.
 */
import t from 'tap'
import { readFileSync } from 'node:fs'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from '../story/site.ts'

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'

function web(addresses: readonly string[]): string {
  const endpoints = addresses.map(
    (address, i) =>
      `- { addresses: ['${address}'], targetRef: { kind: Pod, name: web-${i} }, conditions: { ready: true } }`,
  )
  return `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: None, ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints:
${endpoints.join('\n')}
`
}

t.test('a pod CIDR that is added to a running cluster', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await StorySite.join(t, 'milano', broker, ['10.42.0.0/16'])
  const paris = await StorySite.join(t, 'paris', broker, ['10.50.0.0/16'])
  await Promise.all([milano.start(), paris.start()])
  for (const site of [milano, paris]) site.write('namespace.yaml', NAMESPACE)
  milano.write('web.yaml', web(['10.42.0.5', '10.60.0.5']))
  const { code, stderr } = await runCli(['export', 'web', '-n', 'shop', '--site', milano.folder.file])
  t.equal(code, 0, stderr)
  const seen = (wanted: readonly string[]): Promise<unknown> =>
    eventually(() => wanted.every((address) => paris.imports().join().includes(address)), { say: wanted.join() })
  await seen(['10.42.0.5'])
  t.notMatch(paris.imports().join(), '10.60.0.5', 'outside the pod CIDRs')

  const diagnosed = async (): Promise<string> => (await runCli(['diagnose', '--site', milano.folder.file])).stdout
  await eventually(async () => (await diagnosed()).includes('PodsOutsideRanges'), { deadlineMs: 20_000, say: 'told' })
  t.match(await diagnosed(), /--pod-cidr 10\.42\.0\.0\/16 --pod-cidr 10\.60\.0\.0\/16/)
  t.match((await runCli(['status', '--site', milano.folder.file])).stdout, /PodsOutsideRanges/)

  const state = (cidrs: string): void =>
    milano.folder.write('site.yaml', milano.folder.read('site.yaml').replace(/podCIDRs: .*/, `podCIDRs: ${cidrs}`))
  const key = (): string => readFileSync(milano.folder.path('state/identity/cluster.key'), 'utf8')
  const before = key()
  await milano.stop()
  state('["10.42.0.0/16", "10.60.0.0/16"]')
  await milano.start()
  await seen(['10.42.0.5', '10.60.0.5'])
  t.equal(key(), before, 'no new join')

  // The network of another member: all pod CIDRs of the later claim get global addresses.
  await milano.stop()
  state('["10.42.0.0/16", "10.60.0.0/16", "10.50.0.0/16"]')
  await milano.start()
  await seen(['244.'])
  t.equal(key(), before, 'translated, and the same member')
})
