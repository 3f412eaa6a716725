/** Each component may read what it follows: its sources name the kinds, and its role must allow them. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { KIND_PLACES } from '../../../kubeapi/kube/kinds.ts'
import { clusterAccess, consoleNamespaceAccess, consoleReaders } from '../../../install/policies/member-access.ts'
import type { Kind } from '../../../model/objects.ts'
import { planMember } from '../../../install/plan-member.ts'
import { DEFAULT_VALUES } from '../../../install/values/install-values.ts'
import { ROOT } from '../../support/source-tree.ts'
import { PLAIN_SITE_SOURCES } from '../plain-site-sources.ts'

interface Rule {
  readonly apiGroups: readonly string[]
  readonly resources: readonly string[]
  readonly verbs: readonly string[]
  readonly resourceNames?: readonly string[]
}

/** Kinds that a part reads only in its own namespace, as their Role says. */
const IN_OWN_NAMESPACE: ReadonlySet<Kind> = new Set(['Lease'])

/** The file that composes each part. */
const STARTED_BY = {
  agent: 'compose/site/agent.ts',
  gateway: 'compose/site/gateway.ts',
  routeagent: 'compose/site/routeagent.ts',
  dns: 'compose/site/dns.ts',
} as const

for (const part of ['agent', 'gateway', 'routeagent', 'dns'] as const) {
  t.test(part, async (t) => {
    const [role] = clusterAccess({ part, namespace: 'sealane-system' })
    const rules = (role?.['rules'] ?? []) as readonly Rule[]
    const kinds = followedKinds(part)
    t.ok(kinds.length > 0, 'it follows something')
    for (const kind of kinds.filter((one) => !IN_OWN_NAMESPACE.has(one))) {
      for (const verb of ['get', 'list', 'watch']) t.ok(allows(rules, kind, verb), `it may ${verb} ${kind}`)
    }
  })
}

t.test('the console reads what its page shows, and no Secret, and writes nothing', async (t) => {
  const place = { part: 'console', namespace: 'sealane-system' } as const
  const [role] = clusterAccess(place)
  const [own] = consoleNamespaceAccess(place.namespace)
  const rules = [role, own].flatMap((one) => (one?.['rules'] ?? []) as readonly Rule[])
  const sources = ['kube-facts.ts', 'path/gather-path.ts', 'console/console-source.ts'].map((name) =>
    readFileSync(join(ROOT, 'cli/status', name), 'utf8'),
  )
  const asked = (Object.keys(KIND_PLACES) as Kind[]).filter((kind) =>
    sources.some((text) => new RegExp(`'${kind}'|KIND_PLACES\\.${kind}\\b`).test(text)),
  )
  t.ok(asked.includes('Gateway') && asked.includes('AccessPolicy'), 'the sources name kinds')
  for (const kind of asked) t.ok(allows(rules, kind, 'list'), `it may list ${kind}`)
  const written = rules.flatMap(({ resources, verbs }) =>
    verbs.some((verb) => !['get', 'list', 'watch'].includes(verb)) ? resources : [],
  )
  t.same(written, ['tokenreviews'], 'which are answered, and not stored')
  const named = rules.flatMap(({ resources }) => resources)
  for (const never of ['secrets', 'configmaps', 'pods/exec', 'pods/log', 'pods/portforward', '*']) {
    t.notOk(named.includes(never), never)
  }
})

t.test('a reader of the console may make a token for it and call it, and nothing else', async (t) => {
  const [account, role] = consoleReaders('sealane-system')
  t.match(account, { kind: 'ServiceAccount', automountServiceAccountToken: false })
  t.same(role?.['rules'], [
    {
      ...{ apiGroups: [''], resources: ['serviceaccounts/token'], verbs: ['create'] },
      resourceNames: ['sealane-console-reader'],
    },
    {
      ...{ apiGroups: [''], resources: ['services/proxy'], verbs: ['get'] },
      resourceNames: ['https:sealane-console:console'],
    },
  ])
})

t.test('the console is installed on request alone', async (t) => {
  const named = (enabled: boolean): string[] =>
    planMember({ ...DEFAULT_VALUES, console: { ...DEFAULT_VALUES.console, enabled } })
      .flatMap(({ objects }) => objects)
      .filter(({ metadata }) => /sealane-console/.test(metadata.name))
      .map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  t.same(named(false), [])
  t.same(named(true), [
    'ServiceAccount sealane-console',
    'ClusterRole sealane-console',
    'ClusterRoleBinding sealane-console',
    'Role sealane-console',
    'RoleBinding sealane-console',
    'ServiceAccount sealane-console-reader',
    'Role sealane-console-reader',
    'Service sealane-console',
    'Deployment sealane-console',
    'NetworkPolicy sealane-console',
  ])
})

function followedKinds(part: keyof typeof STARTED_BY): Kind[] {
  const folder = join(ROOT, part)
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))
  const own = files.map((name) => join(part, name)).filter((path) => !PLAIN_SITE_SOURCES.has(path))
  const sources = [...own, STARTED_BY[part]].map((path) => join(ROOT, path))
  const text = sources.map((path) => readFileSync(path, 'utf8')).join('\n')
  const named = [...text.matchAll(/\bcache\('(\w+)'\)/g)].map(([, kind]) => kind as Kind)
  return [...new Set(named)].sort()
}

function allows(rules: readonly Rule[], kind: Kind, verb: string): boolean {
  const { apiVersion, plural } = KIND_PLACES[kind]
  const group = apiVersion.includes('/') ? (apiVersion.split('/')[0] ?? '') : ''
  return rules.some(
    ({ apiGroups, resources, verbs, resourceNames }) =>
      resourceNames === undefined && apiGroups.includes(group) && resources.includes(plural) && verbs.includes(verb),
  )
}
