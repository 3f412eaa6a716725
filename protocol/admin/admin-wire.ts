/**
 * The admin service on the wire: gRPC (HTTP/2, unary and streaming calls, statuses) with JSON as messages. Requests are
 * small and rare, an operator may read them, and each has one description, from which its type and its check follow.
 * Parts of a backup are raw bytes. docs/decisions/0091-admin-service.md
 */
import { toUSVString } from 'node:util'
import { Metadata, type ServiceDefinition, status } from '@grpc/grpc-js'
import { knownReason, knownRefusal } from '../../model/reasons/reasons.ts'
import { UserError, messageOf, reasonOf } from '../../runtime/runtime.ts'
import { RefusedError } from '../protocol.ts'
import { REFUSAL_STATUS } from '../transport/transport.ts'
import type { BrokerAdmin, Operator } from './admin-api.ts'

export type AdminMethod = keyof BrokerAdmin
/** The methods with one request and one response. */
export type UnaryMethod = Exclude<AdminMethod, 'backup' | 'stageRestore'>

export const UNARY_METHODS = [
  'version',
  'status',
  'tokens',
  'createToken',
  'revokeToken',
  'members',
  'evict',
  'drain',
  'rekey',
  'changeQuota',
  'accessDefault',
  'setAccessDefault',
  'topology',
  'planTopology',
  'setTopology',
  'relays',
  'addRelay',
  'removeRelay',
  'published',
  'waiting',
  'accept',
  'refuse',
  'authority',
  'rotateAuthority',
  'finishRotation',
  'abortRotation',
  'clustersets',
  'createClusterset',
  'removeClusterset',
  'verify',
] as const satisfies readonly UnaryMethod[]

/** Methods that change nothing, so that another replica may be tried if one does not answer. */
export const READING_METHODS: ReadonlySet<AdminMethod> = new Set<AdminMethod>([
  'version',
  'status',
  'tokens',
  'members',
  'accessDefault',
  'topology',
  'planTopology',
  'relays',
  'published',
  'waiting',
  'authority',
  'clustersets',
  'verify',
])

/** The largest response: 10,000 members of about 2 KiB. */
export const MAX_ADMIN_RESPONSE = 64 << 20
/** The largest request: a token with 32 CIDRs, or one part of a backup. */
export const MAX_ADMIN_REQUEST = 256 << 10

export const CLUSTERSET_HEADER = 'sealane-clusterset'
export const OPERATOR_HEADER = 'sealane-operator-bin'
/** The request of a method whose requests are the parts of a stream. */
export const REQUEST_HEADER = 'sealane-request-bin'
const FIELD_HEADER = 'sealane-field-bin'
const REASON_HEADER = 'sealane-reason'
const HINT_HEADER = 'sealane-hint-bin'

const PACKAGE = '/sealane.admin.v1alpha1.Admin/'

/** `/sealane.admin.v1alpha1.Admin/CreateToken` */
export function adminPath(method: AdminMethod): string {
  return `${PACKAGE}${method.charAt(0).toUpperCase()}${method.slice(1)}`
}

function definition(method: AdminMethod): ServiceDefinition[string] {
  const same = (bytes: Buffer): Buffer => bytes
  return {
    path: adminPath(method),
    requestStream: method === 'stageRestore',
    responseStream: method === 'backup',
    ...{ requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same },
  }
}

export const ADMIN_SERVICE = Object.fromEntries(
  ([...UNARY_METHODS, 'backup', 'stageRestore'] as const).map((method) => [method, definition(method)]),
) as Readonly<Record<AdminMethod, ServiceDefinition[string]>>

export function toJson(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value))
}

/** Throws SyntaxError if it is no JSON. */
export function fromJson(bytes: Uint8Array): unknown {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
}

/** The first byte of a part of a backup says what it is. */
const BYTES = 0
const WARNING = 1

export function encodeBackupPart(part: { readonly bytes: Uint8Array } | { readonly warning: string }): Buffer {
  return 'bytes' in part
    ? Buffer.concat([Buffer.of(BYTES), part.bytes])
    : Buffer.concat([Buffer.of(WARNING), Buffer.from(part.warning)])
}

export function decodeBackupPart(part: Buffer): { readonly bytes: Uint8Array } | { readonly warning: string } {
  const rest = part.subarray(1)
  return part[0] === WARNING ? { warning: rest.toString('utf8') } : { bytes: rest }
}

/** Header values with other characters must be binary. */
export function operatorHeader(operator: Operator): Buffer {
  return toJson(operator)
}

const MAX_USER = 256

/** Takes what the caller says of itself. What is not of the form is left out. */
export function readOperator(header: unknown): Operator {
  if (!(header instanceof Uint8Array)) return {}
  try {
    const { uid, user, sudoUser } = (fromJson(header) ?? {}) as Readonly<Record<string, unknown>>
    const isName = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_USER
    return {
      ...(typeof uid === 'number' && Number.isSafeInteger(uid) && uid >= 0 ? { uid } : {}),
      ...(isName(user) ? { user } : {}),
      ...(isName(sudoUser) ? { sudoUser } : {}),
    }
  } catch {
    return {}
  }
}

// Errors. The caller is an operator of this broker, so it gets the text of every error, unlike a member.

const MAX_DETAILS = 4000

export interface AdminFailure {
  readonly code: status
  readonly details: string
  readonly metadata: Metadata
}

export function adminFailure(error: unknown): AdminFailure {
  const metadata = new Metadata()
  const details = toUSVString(messageOf(error).slice(0, MAX_DETAILS))
  const reason = reasonOf(error)
  if (reason !== undefined) metadata.set(REASON_HEADER, reason)
  if (error instanceof UserError && error.hint !== undefined) metadata.set(HINT_HEADER, Buffer.from(error.hint))
  if (!(error instanceof RefusedError)) return { code: status.UNKNOWN, details, metadata }
  metadata.set(FIELD_HEADER, Buffer.from(error.field))
  return { code: REFUSAL_STATUS[error.code], details, metadata }
}

/** The failure of a call as an error: a refusal as the broker threw it, anything else as UserError. */
export function adminError({ code, details, metadata }: AdminFailure): RefusedError | UserError {
  const [field] = metadata.get(FIELD_HEADER)
  const [text] = metadata.get(REASON_HEADER)
  const [hint] = metadata.get(HINT_HEADER)
  const refusal = knownRefusal(text?.toString())
  if (field !== undefined && refusal !== undefined) return new RefusedError(refusal, field.toString(), details)
  const reason = knownReason(text?.toString())
  if (code === status.UNIMPLEMENTED)
    return new UserError('the release of the broker does not support this command', {
      hint: 'upgrade the broker first',
    })
  return new UserError(details, {
    ...(reason === undefined ? {} : { reason }),
    ...(hint === undefined ? {} : { hint: hint.toString() }),
  })
}
