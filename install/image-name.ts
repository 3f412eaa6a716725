/** Names of images, as pods and nodes have them. Pure. */

export interface ImageName {
  /** `registry.example.org:5000/tools/sealane` */
  readonly repository: string
  /** `0.1.0`; of an image by digest what is behind its colon. */
  readonly tag: string
}

/** A name without a tag gets `tag`. A colon before the last slash is a registry's port. */
export function parseImageName(text: string, tag = 'latest'): ImageName {
  const at = text.lastIndexOf(':')
  if (at <= text.lastIndexOf('/')) return { repository: text, tag }
  return { repository: text.slice(0, at), tag: text.slice(at + 1) }
}

export function formatImageName({ repository, tag }: ImageName): string {
  return `${repository}:${tag}`
}

/** As nodes list it, with the registry and the folder that a short name implies: `docker.io/library/busybox:1`. */
export function fullImageName(text: string): string {
  const { repository, tag } = parseImageName(text)
  const [first = ''] = repository.split('/')
  if (!repository.includes('/')) return `docker.io/library/${repository}:${tag}`
  const isHost = first.includes('.') || first.includes(':') || first === 'localhost'
  return isHost ? `${repository}:${tag}` : `docker.io/${repository}:${tag}`
}
