//! Ids that the hub generates.

/// Id of a message: the prefix of its hub and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnId {
    text: [u8; 32],
    length: usize,
}

impl OwnId {
    pub(crate) fn new(boot: &str, number: u64) -> Self {
        let mut id = Self { text: [0; 32], length: 0 };
        id.push(b"h-");
        id.push(boot.as_bytes());
        id.push(b"-");
        let (digits, place) = digits(number);
        id.push(&digits[place..]);
        id
    }

    /// Returns the id of the answer to this message.
    pub(crate) fn of_answer(mut self) -> Self {
        self.push(b"a");
        self
    }

    fn push(&mut self, more: &[u8]) {
        if let Some(room) = self.text.get_mut(self.length..).and_then(|rest| rest.get_mut(..more.len())) {
            room.copy_from_slice(more);
            self.length += more.len();
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// Returns a number in base 36.
pub(crate) fn base36(number: u64) -> String {
    let (digits, place) = digits(number);
    digits[place..].iter().copied().map(char::from).collect()
}

/// Returns the base-36 digits of a number, right-aligned, and the index of the first.
fn digits(mut number: u64) -> ([u8; 13], usize) {
    let mut digits = [0; 13];
    let mut place = digits.len();
    loop {
        place -= 1;
        digits[place] = b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::try_from(number % 36).unwrap_or_default()];
        number /= 36;
        if number == 0 {
            return (digits, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_id_has_room() {
        let id = OwnId::new(&base36(u64::MAX), u64::MAX).of_answer();
        assert_eq!(id.as_str(), "h-3w5e11264sgsf-3w5e11264sgsfa");
        assert_eq!(OwnId::new("mi1", 0).as_str(), "h-mi1-0");
    }
}
