/**
 * The identity of a member that is a real cluster: the Secret `sealane-identity`. Before the join it holds the token;
 * the agent makes the key of the join in it, and puts the identity in the token's place.
 */
import { type KeyObject, createHash } from 'node:crypto'
import { type ReasonCode, knownReason } from '../../model/reasons/reasons.ts'
import {
  IDENTITY_PARTS,
  type IdentityPart,
  type IdentityStore,
  decodeMemberIdentity,
  encodeMemberIdentity,
} from './member-files.ts'
import { createKey, keyFromPem, keyToPem } from '../identity/identity.ts'
import type { JoinStore } from './join.ts'

export const TOKEN_PART = 'token'
export const JOINING_KEY_PART = 'joining.key'
/** Why the agent could not join, or leave, yet; on the Secret, for `sealane join` and for people. */
export const PROBLEM_ANNOTATION = 'sealane.io/join-problem'
/** Beside it: its stable name (model/reasons/). */
export const REASON_ANNOTATION = 'sealane.io/join-problem-reason'
/** Beside it where waiting mends nothing: which attempt it was. */
export const REFUSED_ANNOTATION = 'sealane.io/join-refused'

/**
 * Beside a token: whoever brought it could not ask the broker what the join changes for other members. The agent asks
 * before it joins, and waits where that is something, until this is gone. Any value counts.
 */
export const ASK_FIRST_ANNOTATION = 'sealane.io/join-asks-first'

/** Nothing is in the way. */
export const NO_PROBLEM: Readonly<Record<string, null>> = {
  [PROBLEM_ANNOTATION]: null,
  [REASON_ANNOTATION]: null,
  [REFUSED_ANNOTATION]: null,
}

/** One Secret. A value of null removes the key or the annotation. */
export interface SecretAccess {
  /** `Secret namespace/name`, for messages. */
  readonly place: string
  /** Undefined when there is no such Secret. */
  read(): Promise<SecretContent | undefined>
  /** Makes the Secret where it is missing. */
  change(change: SecretChange): Promise<void>
}

export interface SecretContent {
  /** Decoded, UTF-8. */
  readonly data: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export interface SecretChange {
  readonly data?: Readonly<Record<string, string | null>>
  readonly annotations?: Readonly<Record<string, string | null>>
}

/**
 * The problem that is noted on a Secret; `final` when it is about the token that lies there, with these settings, and
 * waiting mends nothing. An agent of earlier settings may still run and be refused for those.
 */
export function joinProblem(
  content: SecretContent | undefined,
  settings: string,
): { readonly text: string; readonly reason?: ReasonCode; readonly final: boolean } | undefined {
  const text = content?.annotations[PROBLEM_ANNOTATION]
  if (content === undefined || text === undefined) return undefined
  const token = content.data[TOKEN_PART]
  const reason = knownReason(content.annotations[REASON_ANNOTATION])
  const final = token !== undefined && content.annotations[REFUSED_ANNOTATION] === attempt(token, settings)
  return { text, ...(reason === undefined ? {} : { reason }), final }
}

/** Distinguishes attempts and discloses nothing about the token: its secret has 256 bits. */
function attempt(token: string, settings: string): string {
  return createHash('sha256').update(`${token.trim()}\n${settings}`).digest('hex').slice(0, 16)
}

export interface SecretIdentity extends IdentityStore, JoinStore {
  /** Takes out what the broker does not take any more; a token that lies there stays. */
  dropIdentity(): Promise<void>
}

/** `settings` is the text of the site file: with another one, a token that was refused may do. */
export function secretIdentity(secret: SecretAccess, settings = ''): SecretIdentity {
  const part = async (name: string): Promise<string | undefined> => (await secret.read())?.data[name]
  return {
    place: secret.place,
    read: async () => {
      const data = (await secret.read())?.data ?? {}
      return decodeMemberIdentity(identityParts(data), (name) => `${secret.place}: ${name}`)
    },
    write: (identity) =>
      secret.change({
        data: { ...encodeMemberIdentity(identity), [TOKEN_PART]: null, [JOINING_KEY_PART]: null },
        annotations: NO_PROBLEM,
      }),
    // The Secret itself stays until Sealane goes: a new token can be put into it.
    remove: async () => {
      if ((await secret.read()) === undefined) return
      const parts = [...IDENTITY_PARTS, TOKEN_PART, JOINING_KEY_PART]
      await secret.change({ data: Object.fromEntries(parts.map((name) => [name, null])), annotations: NO_PROBLEM })
    },
    dropIdentity: () => secret.change({ data: Object.fromEntries(IDENTITY_PARTS.map((name) => [name, null])) }),
    token: () => part(TOKEN_PART),
    key: async (): Promise<KeyObject> => {
      const kept = await part(JOINING_KEY_PART)
      if (kept !== undefined) return keyFromPem(kept)
      const key = createKey()
      await secret.change({ data: { [JOINING_KEY_PART]: keyToPem(key) } })
      return key
    },
    dropToken: async () => {
      if ((await part(TOKEN_PART)) === undefined) return false
      await secret.change({ data: { [TOKEN_PART]: null } })
      return true
    },
    problem: async (problem) => {
      if (problem === undefined) {
        const said = (await secret.read())?.annotations ?? {}
        if (Object.keys(NO_PROBLEM).some((name) => name in said)) await secret.change({ annotations: NO_PROBLEM })
        return
      }
      const { text, reason, refused } = problem
      await secret.change({
        annotations: {
          [PROBLEM_ANNOTATION]: text,
          [REASON_ANNOTATION]: reason ?? null,
          [REFUSED_ANNOTATION]: refused === undefined ? null : attempt(refused, settings),
        },
      })
    },
    asksFirst: async () => ASK_FIRST_ANNOTATION in ((await secret.read())?.annotations ?? {}),
    isRefused: async (token) => (await secret.read())?.annotations[REFUSED_ANNOTATION] === attempt(token, settings),
  }
}

function identityParts(data: Readonly<Record<string, string>>): Partial<Record<IdentityPart, string>> {
  const parts: Partial<Record<IdentityPart, string>> = {}
  for (const name of IDENTITY_PARTS) if (data[name] !== undefined) parts[name] = data[name]
  return parts
}
