/**
 * The form of each request to the admin service. The broker checks what a request means, such as whether an id exists;
 * here it is only made sure that no field has another type or size.
 */
import { z } from 'zod'
import { QUOTA_FIELDS } from '../../model/model.ts'
import { RefusedError } from '../protocol.ts'
import type { BrokerAdmin } from './admin-api.ts'
import type { AdminMethod } from './admin-wire.ts'

/** The longest name, path or CIDR. */
const MAX_REQUEST_TEXT = 4096
const MAX_LIST = 1000

const text = z.string().max(MAX_REQUEST_TEXT)
const amount = z.number()
const none = z.object({})
const limit = z.union([amount, z.literal('default')]).optional()
const answer = z.object({ cluster: text, fingerprint: text.optional() })
const force = z.object({ force: z.boolean() })

export type AdminRequest<M extends AdminMethod> =
  Parameters<BrokerAdmin[M]> extends readonly [infer Init, ...unknown[]] ? Init : Record<string, never>

const REQUESTS: { readonly [M in AdminMethod]: z.ZodType<AdminRequest<M>> } = {
  version: none,
  status: none,
  tokens: none,
  createToken: z.object({
    ttlMs: amount.optional(),
    uses: amount.optional(),
    cluster: text.optional(),
    allowedCIDRs: z.array(text).max(MAX_LIST).optional(),
    labels: z.record(text, text).optional(),
    approve: z.boolean().optional(),
  }),
  revokeToken: z.object({ id: text }),
  members: none,
  evict: z.object({ cluster: text, force: z.boolean() }),
  drain: z.object({ cluster: text, drained: z.boolean(), now: z.boolean().optional() }),
  rekey: z.object({ cluster: text, ttlMs: amount.optional() }),
  changeQuota: z.object({
    cluster: text,
    change: z.object(Object.fromEntries(QUOTA_FIELDS.map((field) => [field, limit]))),
  }),
  accessDefault: none,
  setAccessDefault: z.object({ accessDefault: z.enum(['allow', 'deny']) }),
  topology: none,
  // The broker checks it by its description, which names the field.
  planTopology: z.object({ topology: z.unknown(), linksOnly: z.boolean().optional() }),
  setTopology: z.object({ topology: z.unknown(), basedOn: amount.optional() }),
  relays: none,
  addRelay: z.object({ address: text }),
  removeRelay: z.object({ relay: text }),
  published: none,
  waiting: none,
  accept: answer,
  refuse: answer,
  authority: none,
  rotateAuthority: z.object({ certificate: text.optional(), force: z.boolean() }),
  finishRotation: force,
  abortRotation: none,
  clustersets: none,
  createClusterset: z.object({
    name: text,
    globalRange: text.optional(),
    clustersetIpRange: text.optional(),
  }),
  removeClusterset: z.object({ name: text, force: z.boolean() }),
  verify: none,
  backup: z.object({ knownAs: text }),
  stageRestore: force,
}

/** Gives the fields of the request that this release knows. Throws RefusedError (InvalidValue), which names the field. */
export function checkAdminRequest<M extends AdminMethod>(method: M, request: unknown): AdminRequest<M> {
  const schema = REQUESTS[method] as z.ZodType<AdminRequest<M>>
  const parsed = schema.safeParse(request)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const field = issue?.path.join('.') ?? ''
  const name = field === '' ? 'request' : field
  throw new RefusedError('InvalidValue', name, `${name}: ${issue?.message ?? 'expected a map of fields'}`)
}
