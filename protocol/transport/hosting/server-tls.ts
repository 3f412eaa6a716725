/** By what the broker's port serves one clusterset, and whom it takes for a member of it. */
import type { KeyObject } from 'node:crypto'

export interface ServerTls {
  /** The broker's certificate and CA certificates, DER. The first CA is sent along: join tokens pin it. */
  readonly certificate: Uint8Array
  readonly key: KeyObject
  readonly ca: readonly Uint8Array[]
  /** CA certificates of before, DER: who shows a certificate of one of them is told so. */
  readonly removed?: readonly Uint8Array[]
  readonly clusterset: string
}
