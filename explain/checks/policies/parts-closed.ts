/**
 * Whether NetworkPolicies keep our own parts from what they need. Only what is plain is said: nothing at all is let out,
 * or no question of DNS is let in. Gateways and routeagents are on the network of their nodes, where policies do not hold.
 */
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import type { FactObjects } from '../../facts/fact.ts'
import type { Seen } from '../../facts/read-facts.ts'
import type { Finding } from '../../finding.ts'
import { DNS_POD_PORT, LABEL_COMPONENT, workloadName } from '../../names.ts'
import { type Direction, type PolicyRule, isAbout, opens, rulesOf } from '../../policies/let-through.ts'
import { selects } from '../../policies/selects.ts'
import { type World, named, seenAt } from '../../world.ts'

type Policy = Seen<FactObjects['NetworkPolicy']>

const NEEDS = { agent: 'the API server, the broker and DNS', dns: 'the API server' } as const
const PARTS = ['agent', 'dns'] as const

export function partsClosed(world: World): readonly Finding[] {
  return PARTS.flatMap((part) => [...shutIn(world, part), ...(part === 'dns' ? unasked(world) : [])])
}

function shutIn(world: World, part: (typeof PARTS)[number]): readonly Finding[] {
  const policies = policiesOf(world, part, 'Egress')
  const [first] = policies
  if (first === undefined || rulesIn(policies, 'Egress').length > 0) return []
  return [
    {
      reason: 'PolicyStopsPart',
      severity: 'degraded',
      subject: { kind: 'Deployment', namespace: SYSTEM_NAMESPACE, name: workloadName(part) },
      seen: `${partPoliciesText(policies)} lets its pods call nobody, and they need ${NEEDS[part]}`,
      ...seenAt(first),
      mend: `Let the pods of ${workloadName(part)} out to ${NEEDS[part]}, or leave them out of the policy.`,
    },
  ]
}

function unasked(world: World): readonly Finding[] {
  const policies = policiesOf(world, 'dns', 'Ingress')
  const [first] = policies
  const rules = rulesIn(policies, 'Ingress')
  if (first === undefined || rules.some((rule) => opens(rule, { protocol: 'UDP', port: DNS_POD_PORT }))) return []
  return [
    {
      reason: 'PolicyStopsPart',
      severity: 'degraded',
      subject: { kind: 'Service', namespace: SYSTEM_NAMESPACE, name: workloadName('dns') },
      seen: `${partPoliciesText(policies)} lets in nothing at UDP ${DNS_POD_PORT}, where its pods are asked for names`,
      ...seenAt(first),
      mend: `Let callers in at UDP and TCP ${DNS_POD_PORT}: \`sealane join\` brings a policy that does.`,
    },
  ]
}

/** Those that are about the part's pods, as they are labelled; each policy once. */
function policiesOf({ objects }: World, part: string, direction: Direction): readonly Policy[] {
  const pods = (objects.Pod ?? []).filter(({ object: { metadata, spec } }) => {
    return metadata.labels?.[LABEL_COMPONENT] === part && spec?.hostNetwork !== true
  })
  return (objects.NetworkPolicy ?? []).filter(({ object }) => {
    if (object.metadata.namespace !== SYSTEM_NAMESPACE || !isAbout(object, direction)) return false
    return pods.some(({ object: { metadata } }) => {
      return selects(object.spec?.podSelector, { labels: metadata.labels ?? {}, isWhole: true }) === 'yes'
    })
  })
}

function rulesIn(policies: readonly Policy[], direction: Direction): readonly PolicyRule[] {
  return policies.flatMap(({ object }) => rulesOf(object, direction))
}

function partPoliciesText(policies: readonly Policy[]): string {
  return `NetworkPolicy ${named(policies.map(({ object }) => object.metadata.name))}`
}
