/**
 * What an operator asked for by the Node's annotation, and what has been done of it. The text of the annotation only
 * distinguishes one request from another: clocks of two machines are never compared.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ANNOTATION_ROTATE_KEYS } from '../../model/lanes/gateway-node.ts'
import type { Node } from '../../model/objects.ts'
import { replaceFile } from '../../runtime/atomic-file.ts'

const MAX_REQUEST = 64

/** Undefined where nothing is asked for. */
export function askedRotation(node: Node | undefined): string | undefined {
  const text = node?.metadata.annotations?.[ANNOTATION_ROTATE_KEYS]?.slice(0, MAX_REQUEST)
  return text === '' ? undefined : text
}

/** The request that was served last; undefined: none. */
export async function servedRotation(stateDir: string): Promise<string | undefined> {
  try {
    return await readFile(pathIn(stateDir), 'utf8')
  } catch {
    return undefined
  }
}

/** Throws the system's error. */
export async function noteServedRotation(stateDir: string, request: string): Promise<void> {
  await replaceFile(pathIn(stateDir), request)
}

function pathIn(stateDir: string): string {
  return join(stateDir, 'rotated-for')
}
