/**
 * NetworkPolicies that block callers of other clusters from an exported service, one after the other on one cluster:
 * what `sealane status` reports, as a process that reads an API server.
 */
import t from 'tap'
import { spawnCli } from '../cli/run-cli.ts'
import { clusterWith } from '../cli/status/cluster-with.ts'
import { healthyObjects } from '../support/objects/member-facts.ts'
import { serviceObject } from '../support/objects/service-objects.ts'

const PORTS = [
  { name: 'tcp', port: 42, protocol: 'TCP' },
  { name: 'udp', port: 42, protocol: 'UDP' },
]
const HELLO = serviceObject({ name: 'web0', namespace: 'shop' }, { selector: { app: 'hello' }, ports: PORTS } as object)

t.test('a policy that keeps callers out is named until they are let in', async (t) => {
  const server = await clusterWith(t, { ...healthyObjects(), Service: [HELLO] })
  const placed = (name: string) => ({
    resource: 'networking.k8s.io/v1/networkpolicies',
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    namespace: 'shop',
    name,
  })
  const put = (name: string, spec: object): void => {
    const { apiVersion, kind, namespace } = placed(name)
    server.objects.put(placed(name), {
      ...{ apiVersion, kind, metadata: { name, namespace } },
      spec: { podSelector: {}, ...spec },
    })
  }
  const letIn = (cidr: string): object => ({ ingress: [{ from: [{ ipBlock: { cidr } }] }] })
  const status = async () => {
    const { code, stdout } = await spawnCli(['status', '--kubeconfig', server.kubeconfig, '-o', 'json'])
    const { problems } = JSON.parse(stdout) as {
      readonly problems: readonly {
        readonly reason: string
        readonly subject: { readonly name: string }
        readonly seen: string
      }[]
    }
    return { code, problems: problems.map(({ reason, subject: { name }, seen }) => `${reason} ${name}: ${seen}`) }
  }
  t.strictSame(await status(), { code: 0, problems: [] }, 'exported and imported, and nothing is wrong')
  put('deny', { policyTypes: ['Ingress'] })
  const shut = await status()
  t.equal(shut.code, 1)
  t.match(shut.problems, [
    /^PolicyKeepsOut web0: NetworkPolicy shop\/deny selects its pods, but no policy allows ingress fro/,
  ])
  t.equal(shut.problems.length, 1)
  put('clusters', letIn('10.102.0.0/16'))
  const partly = await status()
  t.equal(partly.code, 0, 'one is let in: a notice')
  t.match(partly.problems, [
    /^PolicyKeepsOut web0: .*no policy allows ingress from 10\.103\.0\.0\/16 \(tokyo\) on TCP 42, UDP 42$/,
  ])
  t.equal(partly.problems.length, 1)
  put('clusters', letIn('10.96.0.0/11'))
  t.strictSame(await status(), { code: 0, problems: [] }, 'both are let in')
  server.objects.delete(placed('clusters'))
  t.strictSame(await status(), shut, 'and shut again')
  server.objects.delete(placed('deny'))
  t.strictSame(await status(), { code: 0, problems: [] }, 'nothing is wrong any more')
})
