/**
 * Checks all rows of a store and reports what cannot be right: rows that cannot be read, values that were assigned
 * twice, and references to rows that do not exist. verifyStore() is pure, and takes rows in their stored form, so that
 * one bad row hides no other.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Verified } from '../../protocol/admin/admin.ts'
import {
  AUTHORITY_KEY,
  type Change,
  DATABASE_FILE,
  LogState,
  type LogView,
  SETTINGS_KEY,
  StateError,
  type StoreContent,
  type StoredRow,
  readBackup,
  readBackupContent,
  readDatabaseContent,
  readStoreConfig,
} from '../store/store.ts'
import { type AuthorityTexts, checkAuthority, checkKeys, checkMembers } from './check-members.ts'
import { checkOutbox, checkRecords, checkServices, checkSettings, checkTokens } from './check-records.ts'
import { Findings } from './findings.ts'
import { isScope, wrongField } from './row-form.ts'

export interface VerifyInit {
  readonly nowMs: number
  /** Absent: the authority is not checked. */
  readonly authority?: AuthorityTexts
}

/** Larger than any row that a broker writes: a member's row has a few KiB, and a record at most half a MiB. */
const MAX_ROW_BYTES = 4 * 1024 * 1024

export function verifyStore(content: StoreContent, { nowMs, authority }: VerifyInit): Verified {
  const findings = new Findings()
  const { state: view, rows } = readRows(content, findings)
  const context = { view, findings }
  checkSettings(context)
  // An invalid record is reported once, and no other check uses it.
  view.apply([...checkRecords(context)].map((key) => ({ scope: 'record', key, revision: 0, value: undefined })))
  checkMembers(context)
  checkServices(context)
  checkKeys(context)
  checkTokens(context)
  checkOutbox(context)
  const clusterset = view.get('settings', SETTINGS_KEY)?.clusterset
  if (authority !== undefined && !isElsewhere(view, authority))
    checkAuthority(findings, authority, { clusterset, nowMs })
  const members = view.list('member').filter(({ value }) => value.departedAtMs === undefined).length
  const { epoch, revision } = content
  const records = view.count('record')
  return { clusterset, epoch, revision, rows, members, records, findings: findings.kept, found: findings.count }
}

/** The operator keeps the authority's key, and the certificate is in the store (decision 38). */
function isElsewhere(view: LogView, { certificate, key }: AuthorityTexts): boolean {
  const isHere = certificate !== undefined || key !== undefined
  return !isHere && view.get('authority', AUTHORITY_KEY) !== undefined
}

function readRows(content: StoreContent, findings: Findings): { readonly state: LogState; readonly rows: number } {
  const state = new LogState()
  const revisions = new Map<number, string>()
  let rows = 0
  for (const row of content.rows) {
    const subject = `${row.scope} ${row.key}`
    rows += 1
    checkRevision(row, { content, findings, revisions })
    if (row.text === null) continue
    const value = readValue(row)
    if (typeof value === 'string') findings.add('StoreRowInvalid', subject, value)
    else state.apply([value])
  }
  if (content.compactedRevision > content.revision)
    findings.add('StoreRevisionDisorder', 'meta', 'the compacted revision is later than the latest revision')
  return { state, rows }
}

function checkRevision(
  { scope, key, revision }: StoredRow,
  init: { readonly content: StoreContent; readonly findings: Findings; readonly revisions: Map<number, string> },
): void {
  const subject = `${scope} ${key}`
  const wrong = (text: string): void => init.findings.add('StoreRevisionDisorder', subject, text)
  const latest = init.content.revision
  const other = init.revisions.get(revision)
  init.revisions.set(revision, other ?? subject)
  if (!Number.isSafeInteger(revision) || revision < 1) wrong(`revision ${revision}: expected 1 or more`)
  else if (revision > latest) wrong(`revision ${revision} is later than ${latest}, the latest of the store`)
  else if (other !== undefined) wrong(`revision ${revision} also belongs to ${other}`)
}

/** Returns the row, or what is wrong with it. */
function readValue({ scope, key, revision, text }: StoredRow): Change | string {
  if (!isScope(scope)) return 'this release does not know the scope'
  if (key === '') return 'the key is empty'
  if (text === null || Buffer.byteLength(text) > MAX_ROW_BYTES) return `expected at most ${MAX_ROW_BYTES} bytes`
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return 'the value is not JSON'
  }
  const field = wrongField(scope, value)
  if (field === undefined) return { scope, key, revision, value: value as NonNullable<Change['value']> }
  return field === '' ? 'the value is not an object' : `${field}: the value has an invalid form`
}

// Checks a broker's state, or a backup of it, without changing it. A broker may be running.

/** Throws StateError if there is no state, or if it cannot be read at all. */
export async function verifyState(stateDir: string, nowMs: number): Promise<Verified> {
  const store = await readStoreConfig(stateDir)
  if (store !== undefined) {
    const text = `the state of this broker is in ${store.url}: "sealane broker verify" can check only databases and backups`
    throw new StateError('Foreign', store.url, text)
  }
  const content = readDatabaseContent(join(stateDir, DATABASE_FILE))
  const [certificate, key] = [await textOf(join(stateDir, 'ca.crt')), await textOf(join(stateDir, 'ca.key'))]
  return verifyStore(content, { nowMs, authority: { certificate, key } })
}

/** Takes a file that `broker backup` has written. Throws StateError if it is another file, or incomplete. */
export function verifyBackup(file: string, nowMs: number): Verified {
  const { files } = readBackup(file)
  const authority = { certificate: files['ca.crt'], key: files['ca.key'] }
  return verifyStore(readBackupContent(file), { nowMs, authority })
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new StateError('Failed', file, `${file} cannot be read (${message})`, error)
  }
}
