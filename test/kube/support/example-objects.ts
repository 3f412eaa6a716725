/** Objects of examples/, as a user applies them. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseDocuments } from '../../../kubeapi/yaml.ts'
import { ROOT } from '../../support/source-tree.ts'
import type { KubeObject } from './kube-request.ts'
import { pathOf } from './object-path.ts'
import type { Site } from './callers.ts'

export interface Example {
  /** Below examples/. */
  readonly file: string
  readonly namespace: string
  /** Words of the file → what a user writes in their place. Each has to be there. */
  readonly replace?: Readonly<Record<string, string>>
}

/** Applies all objects of the file. Throws for a file that is not as the test takes it to be. */
export async function applyExample({ api }: Site, { file, namespace, replace = {} }: Example): Promise<void> {
  let text = readFileSync(join(ROOT, 'examples', file), 'utf8')
  for (const [word, other] of Object.entries(replace)) {
    if (!text.includes(word)) throw new Error(`examples/${file}: expected it to have ${word}`)
    text = text.replaceAll(word, other)
  }
  for (const document of parseDocuments(text, {})) {
    const [error] = document.errors
    if (error !== undefined) throw error
    const object = document.toJS() as KubeObject
    const placed = { ...object, metadata: { ...object.metadata, namespace } }
    await api.apply(pathOf(placed), placed)
  }
}
