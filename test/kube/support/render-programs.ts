/** Programs of others that turn manifests into objects: the real Helm and kubectl, and their libraries (../render). */
import { join } from 'node:path'
import { buildGoModule } from './build-programs.ts'

export interface RenderPrograms {
  /** ../render/main.go. */
  readonly render: string
  readonly helm: string
  readonly kubectl: string
}

/** The paths of the programs. Throws with what the compiler says. */
export async function renderPrograms(): Promise<RenderPrograms> {
  const folder = join(import.meta.dirname, '..', 'render')
  const { render, helm, kubectl } = await buildGoModule(folder, { tools: ['helm.sh/helm/v3/cmd/helm'] })
  if (render === undefined || helm === undefined || kubectl === undefined) throw new Error(`no program of ${folder}`)
  return { render, helm, kubectl }
}
