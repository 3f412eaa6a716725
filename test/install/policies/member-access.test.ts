/** Each component may read what it follows: its sources name the kinds, and its role must allow them. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { KIND_PLACES } from '../../../kubeapi/kube/kinds.ts'
import { clusterAccess } from '../../../install/policies/member-access.ts'
import type { Kind } from '../../../model/objects.ts'
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
