/** What a pod's resolv.conf means for names of the clusterset. */
import fc from 'fast-check'
import t from 'tap'
import { machineResolver } from '../../cli/status/probes/site-probes.ts'
import { resolverAdvice } from '../../explain/checks/dns.ts'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import { NOW, factSet, healthyObjects } from '../support/objects/member-facts.ts'

const KUBERNETES =
  'search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.43.0.10\noptions ndots:5\n'

t.test('each setting that matters is said, in its own words', async (t) => {
  const rows: [string, string, RegExp[]][] = [
    ['Kubernetes', KUBERNETES, [/^ndots:5: .* first tries 3 search domains; end the name with a dot/]],
    ['ndots that a clusterset name has', KUBERNETES.replace('ndots:5', 'ndots:4'), []],
    ['no search domains', 'nameserver 10.43.0.10\noptions ndots:5\n', []],
    ['a plain machine', 'nameserver 192.0.2.1\nsearch corp.example\n', []],
    ['the last line counts', `${KUBERNETES}options ndots:2\nsearch a\n`, []],
    ['comments', '# options ndots:9\n; search a b\nnameserver 10.0.0.1 # x\n', []],
    ['two servers', 'nameserver 10.0.0.1\nnameserver 10.0.0.2\n', [/musl/]],
    ['four servers', 'nameserver a\n'.repeat(4), [/use the first 3/, /musl/]],
    ['many domains', 'search a b c d e f g\n', [/7 search domains/]],
    ['the clusterset as a search domain', 'search svc.ClusterSet.local.\n', [/short name/]],
    ['empty', '', []],
  ]
  for (const [title, text, wanted] of rows) {
    const said = resolverAdvice(text)
    t.equal(said.length, wanted.length, `${title}: ${said.join('; ')}`)
    for (const [n, pattern] of wanted.entries()) t.match(said[n], pattern, title)
  }
})

t.test('what Kubernetes writes into each pod is not worth a sentence; other numbers are', async (t) => {
  t.same(resolverAdvice(KUBERNETES, 5), [])
  t.equal(resolverAdvice(KUBERNETES.replace('ndots:5', 'ndots:6'), 5).length, 1)
})

t.test('diagnose: a notice for each resolver with something to say, and the member stays healthy', async (t) => {
  const found = (place: 'machine' | 'pod', text: string) => {
    const set = factSet(healthyObjects())
    const items = [{ place, name: place === 'pod' ? 'pod sealane-agent-1' : '/etc/resolv.conf', text }]
    const fact = { t: 'probe', kind: 'resolver', source: 'here', at: NOW, items }
    return diagnoseMember({ ...set, facts: [...set.facts, fact] })
  }
  t.same(found('pod', KUBERNETES).problems, [])
  t.same(found('machine', 'nameserver 10.42.1.1\n').problems, [])
  const [many] = found('pod', `${KUBERNETES}search a b c d e f clusterset.local\n`).problems
  t.match(many, {
    reason: 'ResolverSettings',
    severity: 'notice',
    subject: { kind: 'Resolver', name: 'of pod sealane-agent-1' },
    seen: /^7 search domains: .*; a search domain below clusterset.local/,
  })
  const two = found('machine', 'nameserver 10.42.1.1\nnameserver 192.0.2.1\n')
  t.match(two.problems, [
    { subject: { name: '/etc/resolv.conf' }, seen: /musl .* so each of them must know/, areas: ['dns'] },
  ])
})

t.test('the resolver of a machine counts if it asks a server of the site', async (t) => {
  const rows: readonly (readonly [resolvConf: string, listen: string, counts: boolean])[] = [
    ['nameserver 10.42.1.1', '10.42.1.1:53', true],
    ['nameserver 192.0.2.1\nnameserver fd00::1\n', '[fd00::1]:53', true],
    ['nameserver 127.0.0.1', '0.0.0.0:53', true],
    ['nameserver 10.42.1.9', '0.0.0.0:53', true],
    ['nameserver ::1', '[::]:53', true],
    ['nameserver 192.0.2.1', '0.0.0.0:53', false],
    ['nameserver 10.42.1.1', '10.42.1.1:5353', false],
    ['nameserver 127.0.0.53', '10.42.1.1:53', false],
    ['# nameserver 10.42.1.1', '10.42.1.1:53', false],
    ['', '10.42.1.1:53', false],
  ]
  for (const [text, listen, counts] of rows) {
    const found = machineResolver(text, [listen], new Set(['10.42.1.9']))
    t.equal(found !== undefined, counts, `${text} of ${listen}`)
  }
})

t.test('any text: it never throws', async () => {
  const line = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom('search', 'options ndots:99999999999', 'nameserver'),
  )
  fc.assert(fc.property(fc.array(line), (lines) => resolverAdvice(lines.join('\n')).every((text) => text.length < 400)))
})
