/**
 * Services of two IP families, from a ServiceExport to the answer, with the real broker, agents and DNS servers. Milano
 * and paris have the same IPv4 pods, so these are translated, but different IPv6 pods; oslo has the same IPv6 pods as
 * milano.
 */
import t from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'

/** A Service of both families with one pod, under IPv4 and IPv6. */
function dualService(name: string, spec: string, pod: readonly [four: string, six: string]): string {
  const slices = pod.map((address, i) => {
    const family = i === 0 ? 'IPv4' : 'IPv6'
    return `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-${family.toLowerCase()}, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: ${family}
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: ['${address}'], hostname: pod-0, conditions: { ready: true } }]
`
  })
  return `---
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ${spec}, ipFamilies: [IPv4, IPv6], ports: [{ name: http, port: 80, targetPort: 8080 }] }
${slices.join('')}`
}

function at(name: string): string {
  return `${name}.shop.svc.clusterset.local`
}

t.test('a dual-stack service, where pods have IPv6 and where it is left out', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await StorySite.join(t, 'milano', broker, ['10.42.0.0/16', 'fd00:1::/48'])
  const paris = await StorySite.join(t, 'paris', broker, ['10.42.0.0/16', 'fd00:2::/48'])
  const oslo = await StorySite.join(t, 'oslo', broker, ['10.50.0.0/16', 'fd00:1::/56'])
  const sites = [milano, paris, oslo]
  await Promise.all(sites.map((site) => site.start()))
  for (const site of sites) site.write('namespace.yaml', NAMESPACE)
  await paris.tunnel('milano', 'up')
  await oslo.tunnel('milano', 'up')
  milano.write('web.yaml', dualService('web', 'type: ClusterIP', ['10.42.0.5', 'fd00:1::5']))
  milano.write('db.yaml', dualService('db', 'clusterIP: None', ['10.42.0.7', 'fd00:1::7']))
  const run = async (...words: string[]): Promise<void> => {
    const { code, stderr } = await runCli(words)
    t.equal(code, 0, `${words.join(' ')} ${stderr}`)
  }
  const answers = async (site: StorySite, name: string, want: { A: string; AAAA: string }): Promise<void> => {
    let last: unknown
    const same = async (): Promise<boolean> => {
      const got = { A: await site.dig(at(name)), AAAA: await site.dig(at(name), 'AAAA') }
      last = got
      return got.A === want.A && got.AAAA === want.AAAA
    }
    await eventually(same).catch(() => undefined)
    t.same(last, want, `${site.id}: ${name}`)
  }
  for (const name of ['web', 'db']) await run('export', name, '-n', 'shop', '--site', milano.folder.file)

  const given = /web ClusterSetIP (245\.0\.\d+\.\d+),fd53/
  const ip = await eventually(() => given.exec(paris.imports().join())?.[1])
  const low = ip.split('.').map(Number)
  const group = (high = 0, rest = 0): string => (high * 256 + rest).toString(16)
  const twin = `fd53:ea1a:4e00:0:0:0:${group(low[0], low[1])}:${group(low[2], low[3])}`
  await answers(paris, 'web', { A: ip, AAAA: twin })
  await answers(milano, 'web', { A: ip, AAAA: twin })
  await answers(oslo, 'web', { A: ip, AAAA: 'NOERROR' })
  // IPv4 is answered by the global address, IPv6 without translation.
  await answers(paris, 'db', { A: '244.0.0.7', AAAA: 'fd00:1:0:0:0:0:0:7' })
  await answers(paris, 'pod-0.milano.db', { A: '244.0.0.7', AAAA: 'fd00:1:0:0:0:0:0:7' })
  await answers(oslo, 'db', { A: '244.0.0.7', AAAA: 'NOERROR' })
  t.equal(await paris.dig(`_http._tcp.${at('db')}`, 'SRV'), `0 100 8080 pod-0.milano.${at('db')}.`)

  // Oslo offers its pods by IPv4 only, until the cluster that had the IPv6 range first is gone.
  oslo.write('api.yaml', dualService('api', 'clusterIP: None', ['10.50.0.9', 'fd00:1::9']))
  await paris.tunnel('oslo', 'up')
  await run('export', 'api', '-n', 'shop', '--site', oslo.folder.file)
  await answers(paris, 'api', { A: '10.50.0.9', AAAA: 'NOERROR' })
  await milano.stop()
  await run('cluster', 'evict', 'milano', '--force', '--state', broker.state)
  await answers(paris, 'api', { A: '10.50.0.9', AAAA: 'fd00:1:0:0:0:0:0:9' })
  await answers(paris, 'db', { A: 'NXDOMAIN', AAAA: 'NXDOMAIN' })
})
